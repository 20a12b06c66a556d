"""The first lines of text files: names that are numbers, names that look like numbers, delimiters too many."""

import numpy as np
import pandas as pd
import pytest

from cofactor.data import load
from cofactor.types import DataError

ROWS = np.array([[3.0, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8], [1, 4, 1, 4, 2, 1, 3, 5]])


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "x.csv"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("index", ["", ",", "sample,", "Patient ID,"])
@pytest.mark.parametrize("first", [400.5, 1990.0])
def test_wavelengths_and_years_are_names(write, index, first):
    """They were a row of data, silently."""
    names = [f"{first + 2 * i + 0.1 * i * i:g}" for i in range(8)]
    lines = [",".join(f"{value:g}" for value in row) for row in ROWS]
    text = (
        index + ",".join(names) + "\n" + "".join(f"p{i}," * bool(index) + line + "\n" for i, line in enumerate(lines))
    )
    with pytest.warns(
        UserWarning, match=f"the first line, {names[0]} to {names[-1]}, is taken for the names of features"
    ):
        table = load.read(write(text))
    np.testing.assert_array_equal(table.X, ROWS)
    assert table.feature_names == names
    assert table.row_names == (["p0", "p1", "p2"] if index else None)


def test_ids_beside_the_heading_of_an_index_are_names(write):
    table = load.read(write("cell,7157,672,1956\na,1,2,3\nb,3,2,1\n"))
    assert (table.feature_names, table.row_names) == (["7157", "672", "1956"], ["a", "b"])


@pytest.mark.parametrize(
    "text", ["1,2,3,4,5\n2,3,4,5,6\n7,1,1,1,2\n", "5,9,2,6,1\n1,2,3,4,5\n", "1,3,4,9,11\n3,1,4,1,5\n"]
)
def test_rows_in_order_are_rows(write, text):
    table = load.read(write(text))
    assert table.feature_names is None
    assert table.X.shape[0] == text.count("\n")


def test_names_with_underscores_are_no_numbers(write):
    """12_1 is 121 to Python: a column of such names was a feature."""
    with pytest.warns(UserWarning, match="no features: 'well'"):
        table = load.read(write("a,well\n1,12_1\n2,12_2\n"))
    assert table.feature_names == ["a"]
    assert load.read(write("well,a\n12_1,1\n12_2,2\n")).row_names == ["12_1", "12_2"]
    with pytest.raises(DataError, match="line 4: expected a number in column 'a', found '1_0'"):
        load.read(write("a\n1\n2\n1_0\n"))


@pytest.mark.parametrize(
    "text", ["a,b,\n1,2,\n3,4,\n", "a,b\n1,2,\n3,4,\n", "1,2,\n3,4,\n", "a;b;\n1;2;\n3;4;\n", "a,b, \n1,2,\n3,4, \n"]
)
@pytest.mark.parametrize("blocks", [False, True])
def test_a_delimiter_at_the_end_of_all_lines_is_no_column(write, text, blocks):
    table = load.read(write(text), blocks=blocks)
    np.testing.assert_array_equal(table.X.source.read(0, 2) if blocks else table.X, [[1, 2], [3, 4]])
    assert table.feature_names in (["a", "b"], None)


def test_a_last_column_that_is_empty_or_not_is_a_column(write):
    np.testing.assert_array_equal(load.read(write("a,b,c\n1,2,\n3,4,\n")).X[:, 2], [np.nan, np.nan])
    assert load.read(write("a,b\nr,1,\ns,2,\n")).row_names == ["r", "s"]  # as R writes it
    with pytest.raises(DataError, match=r"line 102: expected 2 cells as in line 1, found 3"):
        load.read(write("a,b,\n" + "1,2,\n" * 100 + "1,2,3\n"))


def test_without_guesses_every_cell_of_the_first_line_is_a_column(write):
    assert load.read(write("a,b,\n1,2,\n"), guesses=False).feature_names == ["a", "b", ""]


@pytest.mark.parametrize("before", ["sep=;\n", "\n\n", "\nSEP=;\r\n", '"sep=;"\n'])
def test_what_stands_before_the_header(write, before):
    """Spreadsheets say what separates cells, and some programs begin with an empty line."""
    table = load.read(write(before + '"Age, years; or";"Weight, kg"\n1,5;2\n3;4\n'))
    np.testing.assert_array_equal(table.X, [[1.5, 2], [3, 4]])
    assert table.feature_names == ["Age, years; or", "Weight, kg"]
    with pytest.raises(DataError, match=rf"line {before.count(chr(10)) + 3}: expected 2 cells"):
        load.read(write(before + "a;b\n1;2\n3\n"))


def test_columns_of_words_say_what_is_read(write):
    with pytest.raises(DataError, match=r"found 2 column\(s\) of text, as 'no'; numbers, True and False are read"):
        load.read(write("a,b\nyes,no\nno,yes\n"))


def test_numbers_written_by_pandas_need_no_word(tmp_path, recwarn):
    pd.DataFrame(ROWS).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(load.read(tmp_path / "x.csv").X, ROWS)
    assert not recwarn.list


TAXA = [f"k__Bacteria;p__{p};g__{g}" for p, g in [("Firmicutes", "A"), ("Firmicutes", "B"), ("Bacteroidota", "C")]]
ACIDS = ["1,3-BPG", "2,3-BPG", "1,5-AG", "1,2-DG"]


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    ("mark", "names", "guesses"), [(",", TAXA, True), (";", ACIDS, True), (",", TAXA, False)]
)  # of a private run the first line alone is looked at
def test_names_that_hold_the_other_marks_do_not_say_how_cells_are_parted(write, mark, names, guesses, blocks):
    """A table of taxa was read as one of single ranks, with one cell in each row."""
    lines = [mark.join(["", *names])] + [mark.join([f"s{i}", *"1234"[: len(names)]]) for i in range(3)]
    table = load.read(write("\n".join(lines) + "\n"), blocks=blocks, guesses=guesses)
    X = table.X.load() if blocks else table.X
    assert table.feature_names == names
    np.testing.assert_array_equal(X, [[1, 2, 3, 4][: len(names)]] * 3)
