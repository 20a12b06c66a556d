"""Comma- and tab-separated files as people write them."""

import gzip
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cofactor.data import load
from cofactor.types import CofactorError, DataError


@pytest.fixture
def write(tmp_path):
    def write(text, name="x.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2\n3,4\n", None, None),
        ("0,1\n3,4\n", None, None),
        ("a,b\n1,2\n3,4\n", ["a", "b"], None),
        ("a;b\n1;2\n3;4\n", ["a", "b"], None),
        ("a, b\r\n1, 2\r\n\r\n3, 4\r\n", ["a", "b"], None),
        ("\ufeffa,b\n1,2\n3,4", ["a", "b"], None),
        (",a,b\nr,1,2\ns,3,4\n", ["a", "b"], ["r", "s"]),
        (",a,b\n0,1,2\n1,3,4\n", ["a", "b"], ["0", "1"]),
        (",0,1\n0,1,2\n1,3,4\n", ["0", "1"], ["0", "1"]),
        (",7157,672\nr,1,2\ns,3,4\n", ["7157", "672"], ["r", "s"]),
        ("cell,a,b\nr,1,2\ns,3,4\n", ["a", "b"], ["r", "s"]),
        ("r,1,2\ns,3,4\n", None, ["r", "s"]),
        ("a,b\nr,1,2\ns,3,4\n", ["a", "b"], ["r", "s"]),
        ('"a,1","b ""2"""\n1,2\n3,4\n', ["a,1", 'b "2"'], None),
    ],
)
def test_header_and_index_are_found(write, text, names, rows):
    table = load.read(write(text))
    np.testing.assert_array_equal(table.X[-1], [3, 4])
    assert (table.feature_names, table.row_names) == (names, rows)


def test_columns_numbered_by_pandas(tmp_path):
    for index in (True, False):
        pd.DataFrame(np.eye(3) * 5).to_csv(tmp_path / "x.csv", index=index)
        table = load.read(tmp_path / "x.csv")
        np.testing.assert_array_equal(table.X, np.eye(3) * 5)
        assert table.feature_names == ["0", "1", "2"]


def test_header_can_be_told(write):
    path = write("5,7\n1,2\n3,4\n")
    assert load.read(path).shape == (3, 2)
    assert load.read(path, header=True).feature_names == ["5", "7"]
    with pytest.raises(DataError, match=r"line 1: expected a number in column 1, found 'a'"):
        load.read(write("a,b\n1,2\n3,4\n"), header=False)


def test_text_columns_and_named_columns_go_to_obs(write):
    table = load.read(write("site,a,ward,code,b\nx,1,7,01,2\ny,3,8,02,4\nx,5,7,03,6\n"), obs=["ward", "code"])
    assert table.feature_names == ["a", "b"]
    assert table.row_names is None  # sites repeat: they do not name rows
    assert {name: column.tolist() for name, column in table.obs.items()} == {
        "site": ["x", "y", "x"],
        "ward": [7, 8, 7],
        "code": ["01", "02", "03"],
    }


def test_missing_numbers_are_nan(write):
    table = load.read(write("a,b,c\n1,,NA\nnan,null,2\n3,4,5\n"))
    np.testing.assert_array_equal(table.X, [[1, np.nan, np.nan], [np.nan, np.nan, 2], [3, 4, 5]])


def test_many_rows_and_columns(write):
    X = np.random.default_rng(0).integers(0, 9, (300, 2000))
    text = "\n".join("\t".join(map(str, row)) for row in X.tolist())
    np.testing.assert_array_equal(load.read(write(text, "x.tsv.gz")).X, X)


@pytest.mark.parametrize("line", [2, 3, 5, 70, 200])
@pytest.mark.parametrize("cells", ["1,2,3,4", "1,2"])
def test_ragged_rows_are_named_by_line(write, line, cells):
    lines = ["a,b,c", *["1,2,3"] * 249]
    lines[line - 1] = cells
    with pytest.raises(
        DataError, match=rf"x.csv: line {line}: expected 3 cells as in line 1, found {len(cells) // 2 + 1}"
    ):
        load.read(write("\n".join(lines)))


def test_ragged_row_after_a_quoted_line_break(write):
    with pytest.raises(DataError, match="line 4: expected 2 cells"):
        load.read(write('n,a\n"r\nr",1\ns\n'))


def test_text_among_numbers_is_named_by_line(write):
    lines = ["a,b", *["1,2"] * 500, "1,2.5 mg", "1,2"]
    with pytest.raises(
        DataError, match=r"line 502: expected a number in column 'b', found '2.5 mg'; .* leave it out \(--leave-out"
    ):
        load.read(write("\n".join(lines)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "expected rows of numbers, found an empty file"),
        ("\n\n", "expected rows of numbers, found an empty file"),
        ("a,b\n", "expected rows of numbers below the header, found none"),
        ("a,b\nx,y\nz,w\n", r"expected at least one column of numbers, found 2 column\(s\) of text"),
    ],
)
def test_nothing_to_read(write, text, found):
    with pytest.raises(DataError, match=found):
        load.read(write(text))


def test_unknown_obs(write):
    with pytest.raises(DataError, match="expected a column 'sit', found 3 other columns; did you mean 'site'"):
        load.read(write("site,a,b\nx,1,2\n"), obs=["sit"])


def test_ratings(write):
    path = write("userId,movieId,rating,timestamp\n10,5,4.0,99\n9,7,0,98\n10,7,3.5,97\n")
    table = load.read_ratings(path)
    assert (table.row_names, table.feature_names) == (["9", "10"], ["5", "7"])
    np.testing.assert_array_equal(table.X.toarray(), [[0, 0], [4, 3.5]])
    assert table.X.nnz == 3  # a rating of 0 is a rating
    assert table.column("user").tolist() == ["9", "10"]


@pytest.mark.parametrize(
    "text", ["u2,i1,3\nu1,i2,4\n", "item;stars;user\ni1;3;u2\ni2;4;u1\n", "x\ty\tz\nu2\ti1\t3\nu1\ti2\t4\n"]
)
def test_rating_columns(write, text):
    table = load.read_ratings(write(text))
    assert (table.row_names, table.feature_names) == (["u1", "u2"], ["i1", "i2"])
    np.testing.assert_array_equal(table.X.toarray(), [[0, 4], [3, 0]])


@pytest.mark.parametrize(
    "header",
    ["item,when,user,stars", "client,user_id,item,rating", "movie,date,rating,user,value"],
)
def test_columns_of_ratings_are_where_the_header_says(write, header):
    """Where a header named all but the times, users, items and times were read by position: times were ratings."""
    lines = [
        {"user": "u2", "item": "i1", "rating": "3", "time": "7"},
        {"user": "u1", "item": "i2", "rating": "4", "time": "9"},
    ]
    means = {"stars": "rating", "movie": "item", "user_id": "user", "when": "time", "date": "time"}
    names = header.split(",")
    body = "".join(",".join(line.get(means.get(name, name), "1") for name in names) + "\n" for line in lines)
    table = load.read_ratings(write(f"{header}\n{body}"))
    assert (table.row_names, table.feature_names) == (["u1", "u2"], ["i1", "i2"])
    np.testing.assert_array_equal(table.X.toarray(), [[0, 4], [3, 0]])
    if "when" in names:
        times = load.read_ratings(write(f"{header}\n{body}"), column="timestamp")
        assert (times.row_names, times.feature_names) == (["u1", "u2"], ["i1", "i2"])
        np.testing.assert_array_equal(times.X.data, [9, 7])


@pytest.mark.parametrize(
    ("text", "column", "found"),
    [
        (
            "movie,uid,rating\nm,u,3\n",
            "rating",
            "column that is called user .*, found 'movie', 'uid', 'rating'; rename or add it",
        ),
        ("movie,zeit,user,stars\nm,1,u,3\n", "timestamp", "column that is called timestamp"),
        ("user,item,date,much\nu,m,1,3\n", "rating", "column that is called rating"),
    ],
)
def test_a_column_of_ratings_is_not_guessed_where_another_one_stands(write, text, column, found):
    """Films were users, and users films."""
    with pytest.raises(DataError, match=found):
        load.read_ratings(write(text), column=column)


def test_clicks_have_times_come_in_any_order_and_add_up(write):
    """Two columns were users and items whatever their header said; with times, these were ratings."""
    for text in ("item,user\nx,a\ny,a\nx,b\nx,b\n", "date,item,user\n1,x,a\n2,y,a\n3,x,b\n5,x,b\n"):
        with pytest.warns(UserWarning, match="no column of ratings: every line counts as 1, as models"):
            clicks = load.read_ratings(write(text), duplicates="sum")
        assert (clicks.row_names, clicks.feature_names) == (["a", "b"], ["x", "y"])
        np.testing.assert_array_equal(clicks.X.toarray(), [[1, 1], [2, 0]])
    with pytest.warns(UserWarning, match="every line counts as 1, the first one too, as models"):
        assert load.read_ratings(write("film,person\nx,a\n")).row_names == ["film", "x"]
    times = load.read_ratings(write(text), column="timestamp", duplicates="sum")
    np.testing.assert_array_equal(times.X.data, [1, 2, 4])  # the mean, in the order of the clicks


def test_a_header_that_names_one_of_two_columns_is_no_click(write):
    """A new user's own file, item,rating, was read as clicks on the stars, by items and by one who is called item."""
    for text in ("item,rating\nx,5\n", "user,rating\na,5\n"):
        with pytest.raises(DataError, match="expected a column that is called"):
            load.read_ratings(write(text))
    with pytest.warns(UserWarning, match="read by their place: user 'user', item 'artist'"):
        assert load.read_ratings(write("user,artist\na,x\n")).feature_names == ["x"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_columns_of_parquet_have_names_even_if_these_are_numbers(tmp_path):
    frame = pd.DataFrame({"0": ["a", "b"], "1": ["x", "y"], "2": [3.0, 4.0]})
    for width, values in ((3, [3, 4]), (2, [1, 1])):
        frame.iloc[:, :width].to_parquet(tmp_path / "r.parquet")
        found = load.read_ratings(tmp_path / "r.parquet")
        assert found.row_names == ["a", "b"]
        np.testing.assert_array_equal(found.X.data, values)


def test_ratings_of_random_triples(tmp_path):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"u": rng.integers(0, 30, 500), "i": rng.integers(0, 40, 500), "r": rng.integers(1, 6, 500)})
    data.to_csv(tmp_path / "r.tsv.gz", sep="\t", index=False, header=False)
    expected = data.pivot_table(index="u", columns="i", values="r", aggfunc="mean")
    table = load.read_ratings(tmp_path / "r.tsv.gz", duplicates="mean")
    np.testing.assert_allclose(table.X.toarray(), expected.fillna(0).to_numpy())
    assert table.X.nnz == expected.notna().to_numpy().sum()
    assert table.feature_names == expected.columns.astype(str).tolist()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "u,i,r\na,b,3\na,c,1\na,b,5\n",
            "line 4: expected one rating per user and item, found another one of user 'a'",
        ),
        ("u,i,r\na,b,3\na,c,good\n", "line 3: expected a rating, found 'good'"),
        ("u,i,r\na,b,3\n,c,1\n", "line 3: expected the name of the user, found none"),
        ("u,i,r\na, ,3\n", "line 2: expected the name of the item, found none"),
        ("u,i,r\na,b,3\na,c\n", "line 3: expected 3 cells as in line 1, found 2"),
        ("u\na\n", r"line 1: expected user,item,rating\[,timestamp\], found 1 cell"),
        ("u,i,r\n", "found none"),
        ("", "found an empty file"),
    ],
)
def test_bad_ratings(write, text, found):
    with pytest.raises(DataError, match=found):
        load.read_ratings(write(text))


@pytest.mark.parametrize("users", [["a", None], [1.0, np.nan]])
def test_a_rating_in_a_parquet_file_without_a_user_is_nobody_s(tmp_path, users):
    """The user was called None, or nan."""
    pd.DataFrame({"user": users, "item": ["x", "y"], "rating": [3, 4]}).to_parquet(tmp_path / "r.parquet")
    with pytest.raises(DataError, match="line 3: expected the name of the user, found none"):
        load.read_ratings(tmp_path / "r.parquet")


def test_ratings_in_another_format(tmp_path, write):
    np.save(tmp_path / "x.npy", np.eye(2))
    with pytest.raises(DataError, match=r"expected ratings as .csv, .csv.gz, .tsv, .tsv.gz, .parquet, found .npy"):
        load.read_ratings(tmp_path / "x.npy")
    with pytest.raises(CofactorError, match=r"duplicates must be 'error', 'mean' or 'sum'. Found 'last'"):
        load.read_ratings(write("a,b,3\n"), duplicates="last")


def test_where_semicolons_separate_commas_are_decimal_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name;x;y\np1;1,5;-2\np2;,25;3,0e1\n")
    table = load.read(tmp_path / "a.csv")
    np.testing.assert_array_equal(table.X, [[1.5, -2], [0.25, 30]])
    assert table.feature_names == ["x", "y"]


@pytest.mark.parametrize("rows", ["1.234;2,5\n3;4\n", "1,5;2\n3;-12.345.678\n", "1.234,5;2\n3;4\n"])
def test_points_before_three_digits_beside_decimal_commas_are_not_guessed_at(tmp_path: Path, rows: str) -> None:
    """1.234 was read as a little more than one, where whoever wrote 2,5 beside it has meant a thousand."""
    (tmp_path / "a.csv").write_text("x;y\n" + rows)
    with pytest.raises(
        DataError, match=r"line [23]: expected numbers with one decimal mark, found '.*', whose point may"
    ):
        load.read(tmp_path / "a.csv")


def test_decimal_points_between_semicolons_are_read_where_no_comma_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x;y\n1.234;2.5\n3;0.125\n")
    np.testing.assert_array_equal(load.read(tmp_path / "a.csv").X, [[1.234, 2.5], [3, 0.125]])
    (tmp_path / "b.csv").write_text("x;y\n0.125;2,5\n")  # no thousands begin with a zero
    np.testing.assert_array_equal(load.read(tmp_path / "b.csv").X, [[0.125, 2.5]])


def test_between_tabs_a_comma_may_be_a_thousand_and_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("y\tx\n2\t1,234\n3\t5,678\n")
    with pytest.warns(UserWarning, match=r"no features: 'x'"):
        assert load.read(tmp_path / "a.tsv").feature_names == ["y"]


def test_columns_of_text_are_named_unless_they_name_rows_or_were_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,sex,x\np1,m,1\np2,f,2\np3,f,2\n")
    with pytest.warns(UserWarning, match=r"a.csv: columns without numbers, which are no features: 'sex'\."):
        load.read(tmp_path / "a.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load.read(tmp_path / "a.csv", obs=["sex"])


def test_true_and_false_are_numbers(tmp_path: Path) -> None:
    """As in a data frame, or in parquet."""
    (tmp_path / "a.csv").write_text("x,smoker\n1,True\n2,FALSE\n3,\n")
    table = load.read(tmp_path / "a.csv")
    assert table.feature_names == ["x", "smoker"]
    np.testing.assert_array_equal(table.X, [[1, 1], [2, 0], [3, np.nan]])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_that_seems_to_number_rows_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    frame = pd.DataFrame({"patient_id": [7, 8, 9], "x": [0.5, 1, 2], "Grid": [1.0, 2, 3]})
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    with pytest.warns(UserWarning, match=r"seem to number rows are features: 'patient_id'; see --leave-out"):
        assert load.read(path).shape == (3, 3)
    assert load.read(path, obs=["patient_id"]).feature_names == ["x", "Grid"]


def test_a_parquet_file_leaves_out_nothing_without_a_word(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": [0.5, 1.0], "b": [Decimal("1.25"), None], "c": ["1", "2"], "d": pd.date_range("2024", periods=2)}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match=r"columns without numbers, which are no features: 'c', 'd'\."):
        table = load.read(tmp_path / "a.parquet")
    np.testing.assert_array_equal(table.X, [[0.5, 1.25], [1.0, np.nan]])


def test_ratings_come_as_parquet_with_dates_and_as_clicks(tmp_path: Path) -> None:
    days = pd.to_datetime(["2024-05-31 00:00", "2024-06-01 12:00", "2024-06-02 00:00"])
    frame = pd.DataFrame({"item": ["x", "y", "x"], "user": [2, 2, 10], "rating": [3, 4.5, 0], "timestamp": days})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[["user", "item"]].to_csv(tmp_path / "clicks.csv", index=False)
    for name in ("a.parquet", "a.csv"):
        found, times = (load.read_ratings(tmp_path / name, column=c) for c in ("rating", "timestamp"))
        assert (found.row_names, found.feature_names) == (["2", "10"], ["x", "y"])
        np.testing.assert_array_equal(found.X.data, [3, 4.5, 0])
        np.testing.assert_array_equal(times.X.data, [day.timestamp() for day in days])
        assert load.are_ratings(tmp_path / name)
    with pytest.warns(UserWarning, match="every line counts as 1"):
        clicks = load.read_ratings(tmp_path / "clicks.csv")
    np.testing.assert_array_equal(clicks.X.toarray(), [[1, 1], [1, 0]])


@pytest.mark.parametrize(
    "text", ["", "\n", "0,1\n1,2\n", "0.5,\n1,2\n", "<0.1,positive,0.731\n1,2,3\n", "nan,nan\n1,2\n"]
)
def test_a_file_of_a_private_run_begins_with_names_whatever_rows_it_has(tmp_path: Path, text: str) -> None:
    """A row that looked like names became public; a file without names that lost its only row was refused alone."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=r"a.csv: expected names of all columns, none of them a number, in the first"):
        load.read(tmp_path / "a.csv", guesses=False)


def test_in_a_private_run_no_row_decides_what_is_a_feature(tmp_path: Path) -> None:
    """A column was text where most of the first rows were, so that a row made a feature appear or vanish."""
    for rows in ("", "p1,a,1\n", "p1,7,1\n", "p1,a,1\np2,7,2\n"):
        (tmp_path / "a.csv").write_text(f"patient,ward,x\n{rows}")
        found = load.read(tmp_path / "a.csv", guesses=False, obs=["patient", "ward"])
        assert found.feature_names == ["x"]
        assert found.row_names == [line[:2] for line in rows.splitlines()]
    with pytest.raises(DataError, match=r"expected a number in column 'patient', found 'p1'; if the column is no feat"):
        load.read(tmp_path / "a.csv", guesses=False)


def test_in_a_private_run_a_file_may_have_names_and_no_rows(tmp_path: Path) -> None:
    """A client that lost its last row ended the run for all, in text alone of all formats."""
    for text, names in (("x,y\n", ["x", "y"]), (",x,y\n", ["x", "y"])):
        (tmp_path / "a.csv").write_text(text)
        table = load.read(tmp_path / "a.csv", guesses=False)
        assert (table.X.shape, table.feature_names) == ((0, 2), names)
        with pytest.raises(DataError, match="expected rows of numbers below the header, found none"):
            load.read(tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_whether_a_column_is_told_does_not_depend_on_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    for names in (["p1", "p2"], ["p1", "p1"]):
        frame = pd.DataFrame({"name": names, "x": [0.5, 1]})
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load.read(path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding_says_what_to_do(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes("caf\u00e9,b\n1,2\n3,4\n".encode(encoding))
    with pytest.raises(DataError, match=r"a.csv: expected text in UTF-8, found another encoding; save it as UTF-8"):
        load.read(path)
