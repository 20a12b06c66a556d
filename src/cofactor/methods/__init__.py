"""Methods: what is computed. Four carry every paper; the catalog maps a paper's name to a composition."""
