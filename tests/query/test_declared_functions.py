"""Show that every declared function is whole: declared once, written for both engines, and known to those who ask."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from tidelake.query.functions.declaration import OURS, PORTABLE
from tidelake.query.functions.macros import MACROS, Engine
from tidelake.query.functions.python import PythonFunction
from tidelake.query.functions.registry import AGGREGATES, FAMILIES, FUNCTIONS, IN_SQL, ROW_MAKERS
from tidelake.query.functions.templates import expanded, filled
from tidelake.query.kql.plain_functions import LINES
from tidelake.query.sql.allowed import FUNCTION_NAMES

ENGINES: tuple[Engine, ...] = ("duckdb", "spark")
RETURNS = {"text", "bool", "int", "long", "real", "decimal", "time", "date", "interval", "dynamic", "same"}
OF_KQL = {"string": "text", "guid": "text", "timespan": "long", "datetime": "time"}


def templates(engine: Engine) -> dict[str, str]:
    forms = {name: function.form(engine) for name, function in FUNCTIONS.items()}
    return {name: form for name, form in forms.items() if isinstance(form, str)}


def test_every_function_is_declared_once() -> None:
    names = [function.name for function in chain.from_iterable(FAMILIES)]
    assert [name for name in names if names.count(name) > 1] == []


def test_every_function_has_both_forms_or_says_why_not() -> None:
    assert [each.name for each in FUNCTIONS.values() if (each.spark is None) != bool(each.duckdb_only)] == []
    assert [name for name in FUNCTIONS if not name.startswith(PORTABLE)] == []
    assert {each.returns for each in FUNCTIONS.values()} - RETURNS == {None}


@pytest.mark.parametrize("engine", ENGINES)
def test_templates_are_written_out_whole(engine: Engine) -> None:
    left = re.compile(r"let\[\[|(?<!\w)<[a-z_]+[ >]|@")
    assert {name for name, template in templates(engine).items() if left.search(expanded(template, engine))} == set()


def test_templates_of_both_engines_use_the_same_arguments() -> None:
    def used(template: str, engine: Engine) -> set[str]:
        return set(re.findall(r"\{(\d+)", expanded(template, engine)))

    both = templates("duckdb"), templates("spark")
    names = [name for name in both[0] if name in both[1] and not name.startswith(OURS)]
    assert [name for name in names if used(both[0][name], "duckdb") != used(both[1][name], "spark")] == []


def test_every_macro_is_used() -> None:
    written = " ".join([*templates("duckdb").values(), *templates("spark").values(), *map(str, MACROS.values())])
    assert [name for name in MACROS if not re.search(rf"(?<!\w)<{name}[ >]", written)] == []


def test_holes_macros_and_let_are_filled() -> None:
    assert filled("f({0}, {2|'x'}, {1*})", ["a", "b"], "duckdb") == "f(a, 'x', b)"
    assert filled("f({*})", ["a", "{0}", "@"], "spark") == "f(a, {0}, @)"
    assert filled("<list_or_null {0}>", ["a"], "spark") == "try_cast(a AS ARRAY<VARIANT>)"
    assert filled("g(let[[{0}]][[@ + @]])", ["a"], "duckdb") == (
        "g(list_transform([a], lambda tide_v: tide_v + tide_v)[1])"
    )
    assert filled("let[[{0}]][[@ + {1}]]", ["a", "@"], "spark") == "transform(array(a), tide_v -> tide_v + @)[0]"
    with pytest.raises(IndexError, match="argument 1"):
        filled("f({0}, {1})", ["a"], "duckdb")


def test_macro_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError, match="text_s"):
        filled("f(<text_s {0}>)", ["a"], "duckdb")


def test_functions_that_kql_calls_return_what_kql_says() -> None:
    said = [line.split(": ")[1].split()[:2] for line in LINES.strip().splitlines()]
    wrong = {name: kind for name, kind in said if FUNCTIONS[name].returns != OF_KQL.get(kind, kind)}
    assert wrong == {}


def test_python_functions_are_registered_under_the_name_that_calls_them() -> None:
    for function in FUNCTIONS.values():
        for form in (function.duckdb, function.spark):
            if isinstance(form, PythonFunction):
                assert (form.name, form.result) == (function.name, function.returns)


def test_functions_of_sql_are_allowed_and_known() -> None:
    of_spark = {name.removeprefix(OURS) for name in FUNCTIONS if name.startswith(OURS)}
    assert of_spark - FUNCTION_NAMES == set()
    assert set(IN_SQL) == {
        "has", "has_any", "has_all", "cosine_distance", "cosine_similarity", "l2_distance", "inner_product",
        "message_template", "template_id",
    }  # fmt: skip
    assert {function.takes for function in FUNCTIONS.values()} - {None} <= set(FUNCTIONS)


def test_calls_that_change_how_many_rows_there_are_say_so() -> None:
    gathers = re.compile(
        r"\b(collect_(list|set)|any_value|string_agg|(min|max)_by|(stddev|var|covar)_(samp|pop)|percentile_disc|avg)\("
    )
    found = {name for name, template in templates("spark").items() if gathers.search(template)}
    assert found - AGGREGATES == set()
    assert {"tide_explode"} == ROW_MAKERS
