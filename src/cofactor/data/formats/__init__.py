"""One file per family of formats; :mod:`cofactor.data.load` chooses among them by suffix."""
