"""Parse KQL: statements, and the query that they end in.

It does not resolve names: see ``lowering``.
"""

from __future__ import annotations

from typing import Any

from tidelake.errors import QueryError
from tidelake.query.kql import syntax
from tidelake.query.kql.mistakes import error_at
from tidelake.query.kql.operators import RULES, Operators


def parse(text: str) -> syntax.Script:
    """Return the syntax of a KQL text; QueryError shows where it is wrong."""
    try:
        return _Parser(text).script(until=None)
    except RecursionError:
        raise error_at(text, 0, "nested too deeply", kind="too_deep") from None


class _Parser(Operators):
    def script(self, *, until: str | None) -> syntax.Script:
        statements: list[syntax.Let | syntax.Other] = []
        query: syntax.Expression | None = None
        while True:
            while self.sign(";"):
                pass
            if self._at_end(until):
                return syntax.Script(tuple(statements), query, self.text)
            start = self.token.at
            statement = self._statement()
            if isinstance(statement, syntax.Let | syntax.Other):
                statements.append(statement)
            elif query is not None:
                raise self.error(
                    "only one query can stand in a text: the one before this would have no effect", at=start
                )
            else:
                query = statement
            if not (self.token.is_sign(";") or self._at_end(until)):
                raise self._unexpected(statement)

    def _unexpected(self, statement: object) -> QueryError:
        """Return what is wrong with what follows a statement, by what people mean who write so."""
        before = self.tokens[self.place - 1]
        if before.is_word("not"):
            return self.error("not is a function: write not(…)")
        if isinstance(statement, syntax.Name) and statement.name in RULES:
            return self.error(
                f"a query begins with a table: '{statement.name}' is an operator, and follows a '|'", at=statement.at
            )
        return self.error(f"expected '|', ';' or the end, found {self.token}")

    def _at_end(self, until: str | None) -> bool:
        return self.token.kind == "end" or (until is not None and self.token.is_sign(until))

    def _statement(self) -> syntax.Expression | syntax.Let | syntax.Other:
        token = self.token
        if token.is_sign("."):
            raise self.error("a management command is not a query")
        if token.is_sign("|"):
            raise self.error("a query begins with a table, and this with '|'")
        if token.is_word("let") and not self.peek().is_sign("|", ";"):
            return self._let()
        if token.is_word("set", "declare", "alias", "restrict") and self.peek().kind == "name":
            return self._other()
        return self.pipe()

    def _let(self) -> syntax.Let:
        start = self.next().at
        name = self.name("a name after let")
        self.expect_sign("=", f"after let {name}")
        if self.token.is_sign("(") and self._is_function():
            return syntax.Let(name, self.function(self.token.at), start)
        return syntax.Let(name, self.pipe(), start)

    def _is_function(self) -> bool:
        """Return whether a bracket opens parameters: it is empty or begins with ``name :``, and a body follows."""
        first, second = self.peek(), self.peek(2)
        if first.is_sign(")"):
            return second.is_sign("{")
        return (first.kind == "name" and second.is_sign(":")) or (first.is_sign("[") and self.peek(4).is_sign(":"))

    def _pattern(self, start: int) -> syntax.Let:
        """Read ``name = (parameters)[path] { (constants).[path] = { query }; … }``."""
        name = self.name("a name after declare pattern")
        if not self.sign("="):
            return syntax.Let(name, syntax.Pattern((), None, (), start), start)
        parameters = self.parameters()
        path = None
        if self.sign("["):
            path = self._parameter()
            self.expect_sign("]", "after a pattern's path")
        self.expect_sign("{", "before a pattern's cases")
        cases = []
        while not self.token.is_sign("}"):
            cases.append(self._case(len(parameters)))
            while self.sign(";"):
                pass
        self.expect_sign("}", "after a pattern's cases")
        return syntax.Let(name, syntax.Pattern(parameters, path, tuple(cases), start), start)

    def _case(self, count: int) -> tuple[tuple[Any, ...], str | None, syntax.Script]:
        start = self.token.at
        self.expect_sign("(", "before a case's constants")
        values = tuple(each.value for each in self.several(self.literal))
        self.expect_sign(")", "after a case's constants")
        if len(values) != count:
            raise self.error(f"a case needs {count} constants", at=start)
        path = None
        if self.sign("."):
            self.expect_sign("[", "before a case's path")
            path = str(self.literal().value)
            self.expect_sign("]", "after a case's path")
        self.expect_sign("=", "after a case's constants")
        self.expect_sign("{", "before a case's query")
        with self.nested():
            body = self.script(until="}")
        self.expect_sign("}", "after a case's query")
        return values, path, body

    def _other(self) -> syntax.Other | syntax.Let:
        start, keyword = self.token.at, self.next().text
        if keyword == "declare" and self.word("query_parameters"):
            return syntax.Other(keyword, self.parameters(), start)
        if keyword == "declare" and self.word("pattern"):
            return self._pattern(start)
        if keyword == "set":
            self.name("an option after set")
            if self.sign("="):
                self.expression()
            return syntax.Other(keyword, (), start)
        depth = 0
        while self.token.kind != "end" and (depth or not self.token.is_sign(";")):
            depth += self.token.is_sign("(", "{", "[") - self.token.is_sign(")", "}", "]")
            self.next()
        return syntax.Other(keyword, (), start)
