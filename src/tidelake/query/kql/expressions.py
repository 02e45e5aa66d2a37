"""Parse KQL's expressions, by precedence: or, and, equality, order, sums, products, text operators, signs, paths.

It does not parse tabular operators: a subclass does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from tidelake.query.kql import syntax
from tidelake.query.kql.cursor import Cursor
from tidelake.query.kql.lexer import Token
from tidelake.query.kql.literals import TYPE_NAMES, number_of, span_of, text_of, typed_of

_TEXT_WORDS = (
    "has", "has_cs", "contains", "contains_cs", "containscs", "startswith", "startswith_cs", "endswith",
    "endswith_cs", "hasprefix", "hasprefix_cs", "hassuffix", "hassuffix_cs", "like", "likecs", "notlike", "notlikecs",
    "notcontains", "notcontainscs", "matches",
)  # fmt: skip
_LIST_WORDS = ("in", "has_any", "has_all")
TEXT_OPERATORS = frozenset(_TEXT_WORDS)
LIST_OPERATORS = frozenset(_LIST_WORDS)
MIN_LONG = str(2**63)  # a long only with a minus before it
PLACES = ("database", "cluster", "workspace", "app", "resource")  # what tables may be said to be of
SCALAR_TYPES = ("bool", "int", "long", "real", "decimal", "string", "datetime", "timespan", "guid", "dynamic")
_EQUALITY = {"==": "==", "!=": "!=", "<>": "!=", "=~": "=~", "!~": "!~", "=": "=="}

Item = TypeVar("Item")


class Expressions(Cursor):
    """Read expressions from tokens."""

    @abstractmethod
    def pipe(self) -> syntax.Expression:
        """Read a pipeline, which may be a plain expression."""

    @abstractmethod
    def script(self, *, until: str | None) -> syntax.Script:
        """Read statements up to a sign, or to the end."""

    def expression(self) -> syntax.Expression:
        """Read any expression without pipes."""
        with self.nested():
            return self._junction("or")

    def named_expression(self) -> syntax.Expression:
        """Read ``name = value``, ``(a, b) = value`` or a value alone."""
        start = self.token.at
        if self.token.is_sign("(") and (names := self._tuple_of_names()):
            return syntax.Named(names, self.expression(), start)
        if name := self._assigned_name():
            return syntax.Named((name,), self.expression(), start)
        return self.expression()

    def _assigned_name(self) -> str | None:
        width = 1 if self.token.kind == "name" else 3 if self.is_bracketed_name() else 0
        if not width or not self.peek(width).is_sign("="):
            return None
        name = self.name("a name")
        self.next()
        return name

    def _tuple_of_names(self) -> tuple[str, ...] | None:
        ahead = 1
        while self.peek(ahead).kind == "name" and self.peek(ahead + 1).is_sign(","):
            ahead += 2
        if not (
            self.peek(ahead).kind == "name" and self.peek(ahead + 1).is_sign(")") and self.peek(ahead + 2).is_sign("=")
        ):
            return None
        self.next()
        names = self.several(lambda: self.name("a column name"))
        self.place += 2
        return names

    def _junction(self, word: str) -> syntax.Expression:
        start = self.token.at
        parts = [self._conjunct(word)]
        while self.word(word):
            parts.append(self._conjunct(word))
        return parts[0] if len(parts) == 1 else syntax.Junction(word, tuple(parts), start)

    def _conjunct(self, word: str) -> syntax.Expression:
        return self._junction("and") if word == "or" else self._equality()

    def _equality(self) -> syntax.Expression:
        left = self._relation()
        token = self.token
        if token.kind == "sign" and token.text in _EQUALITY:
            self.next()
            return syntax.Binary(_EQUALITY[token.text], left, self._relation(), token.at)
        negated = token.is_sign("!") and self.peek().kind == "name" and not self.peek().spaced
        word = self.peek() if negated else token
        if word.is_word("between"):
            self.place += 2 if negated else 1
            return self._between(left, negated, token.at)
        if word.kind == "name" and word.text in LIST_OPERATORS:
            self.place += 2 if negated else 1
            return self._among(left, ("!" if negated else "") + word.text, token.at)
        return left

    def _between(self, operand: syntax.Expression, negated: bool, at: int) -> syntax.Expression:
        self.expect_sign("(", "after between")
        low = self._sum()
        self.expect_sign("..", "between the two bounds")
        high = self._sum()
        self.expect_sign(")", "after the bounds of between")
        return syntax.Between(operand, low, high, negated, at)

    def _among(self, left: syntax.Expression, operator: str, at: int) -> syntax.Expression:
        if self.token.is_sign("~") and not self.token.spaced:
            self.next()
            operator += "~"
        if not self.token.is_sign("("):
            return syntax.Among(operator, left, (self._signed(),), at)
        self.next()
        options: list[syntax.Expression] = []
        with self.nested():
            while not self.token.is_sign(")"):
                is_plain = self.token.kind in ("string", "number") and self.peek().is_sign(",", ")")
                options.append(self.literal() if is_plain else self.pipe())
                if not self.sign(","):
                    break
        self.expect_sign(")", f"after the list of '{operator}'")
        return syntax.Among(operator, left, tuple(options), at)

    def _relation(self) -> syntax.Expression:
        left = self._sum()
        token = self.token
        if token.is_sign("<", ">", "<=", ">="):
            self.next()
            return syntax.Binary(token.text, left, self._sum(), token.at)
        return left

    def _sum(self) -> syntax.Expression:
        return self._chain(self._product, "+", "-")

    def _product(self) -> syntax.Expression:
        return self._chain(self._text_operation, "*", "/", "%")

    def _chain(self, part: Any, *signs: str) -> syntax.Expression:
        left: syntax.Expression = part()
        count = 0
        while self.token.is_sign(*signs):
            token = self.next()
            count += 1
            if count > 200:
                raise self.error("too many terms in one sum or product", at=token.at, kind="too_deep")
            left = syntax.Binary(token.text, left, part(), token.at)
        return left

    def _text_operation(self) -> syntax.Expression:
        left = self._signed()
        if self.in_search and isinstance(left, syntax.Name) and self.token.is_sign(":"):
            token = self.next()
            return syntax.Binary("has", left, self._signed(), token.at)
        while found := self._text_operator():
            operator, token = found
            left = syntax.Binary(operator, left, self._signed(), token.at)
        return left

    def _text_operator(self) -> tuple[str, Token] | None:
        token = self.token
        negated = token.is_sign("!") and self.peek().kind == "name" and not self.peek().spaced
        word = self.peek() if negated else token
        if word.kind != "name" or word.text not in TEXT_OPERATORS:
            return None
        self.place += 2 if negated else 1
        if word.text == "matches":
            self.expect_word("regex", "after matches")
        return ("!" if negated else "") + word.text, token

    def _signed(self) -> syntax.Expression:
        token = self.token
        if token.is_sign("-", "+"):
            self.next()
            if token.is_sign("-") and self.token.text == MIN_LONG:
                self.next()
                return syntax.Literal("long", -int(MIN_LONG), token.at)
            with self.nested():
                return syntax.Unary(token.text, self._signed(), token.at)
        return self._path()

    def _path(self) -> syntax.Expression:
        base = self._primary()
        count = 0
        while True:
            token = self.token
            count += 1
            if count > 100:
                raise self.error("too many steps in one path", kind="too_deep")
            if token.is_sign(".") and (self.peek().kind in ("name", "span") or self.peek().is_sign("[", "*")):
                self.next()
                base = self._member(base, token.at)
            elif token.is_sign("["):
                self.next()
                index = self.expression()
                self.expect_sign("]", "after an index")
                base = syntax.Index(base, index, token.at)
            else:
                return base

    def _member(self, base: syntax.Expression, at: int) -> syntax.Expression:
        if (place := _place_of(base)) is not None and (count := self.pattern_ahead()):
            return self.table_pattern(count, f"{place}." if place else "", at)
        if self.token.is_sign("[") and not self.is_bracketed_name():
            self.next()
            index = self.expression()
            self.expect_sign("]", "after an index")
            return syntax.Index(base, index, at)
        if self.token.kind == "name" and self.peek().is_sign("("):
            call = self._call(self.next())
            return syntax.Call(call.name, (base, *call.arguments), at)
        name = self.next().text if self.token.kind == "span" else self.name("a name after '.'")
        return syntax.Member(base, name, at)

    def pattern_ahead(self, *signs: str) -> int:
        """Return how many tokens are a table's name with stars, perhaps with other signs; zero if none is next."""
        count, stars = 0, 0
        while (token := self.peek(count)).kind in ("name", "number") or token.is_sign("*", *signs):
            if count and token.spaced:
                break
            count, stars = count + 1, stars + token.is_sign("*")
        return count if stars else 0

    def table_pattern(self, count: int, prefix: str, at: int) -> syntax.Wildcard:
        """Read a name with stars, of as many tokens."""
        return syntax.Wildcard(prefix + "".join(self.next().text for _ in range(count)), at)

    def _primary(self) -> syntax.Expression:
        token = self.token
        match token.kind:
            case "string":
                return self._strings()
            case "number" | "span" | "typed":
                return self.literal()
            case "name":
                return self._word()
        if self.is_bracketed_name():
            return syntax.Name(self.name("a name"), token.at)
        if token.is_sign("*"):
            self.next()
            return syntax.Wildcard("*", token.at)
        if token.is_sign("("):
            self.next()
            with self.nested():
                inner = self.pipe()
            self.expect_sign(")", "to close the bracket")
            return inner
        hint = ": write not(…)" if token.is_sign("!") else ""
        raise self.error(f"expected a value, found {token}{hint}")

    def _strings(self) -> syntax.Literal:
        """Read a string, and those that follow it: neighbours are one text."""
        start = self.token.at
        text = text_of(self.next().text)
        while self.token.kind == "string":
            text += text_of(self.next().text)
        return syntax.Literal("string", text, start)

    def literal(self) -> syntax.Literal:
        """Read a literal that is one token."""
        token = self.token
        try:
            match token.kind:
                case "string":
                    return self._strings()
                case "number":
                    number = number_of(token.text)
                    found = syntax.Literal("long" if isinstance(number, int) else "real", number, token.at)
                case "span":
                    found = syntax.Literal("timespan", span_of(token.text), token.at)
                case "typed":
                    found = self._typed(token)
                case _:
                    raise self.error(f"expected a literal, found {token}")
        except (ValueError, KeyError, OverflowError) as error:
            if hasattr(error, "facts"):
                raise
            if token.kind == "number":
                raise self.error(f"{token} is beyond a long of 64 bits: write real({token.text})") from error
            raise self.error(f"not a value of its type: {token}") from error
        self.next()
        return found

    def _typed(self, token: Token) -> syntax.Literal:
        """Read ``type(value)``; a value that is not one is told of when it is used."""
        try:
            return syntax.Literal(*typed_of(token.text), token.at)
        except (ValueError, KeyError, OverflowError):
            kind = token.text.split("(")[0].strip()
            return syntax.Literal(TYPE_NAMES.get(kind, kind), syntax.Unreadable(token.text), token.at)

    def _word(self) -> syntax.Expression:
        token = self.next()
        if token.text == "toscalar" and self.token.is_word("kind") and self.peek().is_sign("="):
            self.place += 3  # how it is to be run, not what
        if token.text in ("true", "false", "True", "False", "TRUE", "FALSE") and not self.token.is_sign("("):
            return syntax.Literal("bool", token.text.lower() == "true", token.at)
        if token.text == "null" and not self.token.is_sign("("):
            return syntax.Literal("dynamic", None, token.at)
        if not self.token.is_sign("("):
            if self.token.is_sign("*") and not self.token.spaced and self._ends_wildcard():
                return self._wildcard(token)
            return syntax.Name(token.text, token.at)
        match token.text:
            case "dynamic":
                return self._dynamic(token)
            case "datatable":
                return self._datatable(token)
            case "externaldata" | "external_data":
                return self._externaldata(token)
            case "typeof":
                return self._typeof(token)
            case "view":
                return replace(self.function(token.at), is_view=True)
        return self._call(token)

    def _ends_wildcard(self) -> bool:
        """Return whether the star after a name belongs to the name: nothing follows that could be multiplied."""
        after = self.peek()
        return after.kind == "end" or after.is_sign(",", ")", "|", ";") or after.is_word("by", "on")

    def _wildcard(self, token: Token) -> syntax.Wildcard:
        self.next()
        return syntax.Wildcard(token.text + "*", token.at)

    def _call(self, name: Token) -> syntax.Call:
        self.expect_sign("(", f"after {name}")
        arguments: list[syntax.Expression] = []
        with self.nested():
            while not self.token.is_sign(")"):
                arguments.append(self._argument())
                if not self.sign(","):
                    break
        self.expect_sign(")", f"to close the arguments of {name}")
        return syntax.Call(name.text, tuple(arguments), name.at)

    def _argument(self) -> syntax.Expression:
        start = self.token.at
        if name := self._assigned_name():
            return syntax.Named((name,), self.pipe(), start)
        return self.pipe()

    def _typeof(self, token: Token) -> syntax.TypeName:
        self.next()
        if self.token.kind == "name" and self.peek().is_sign(")"):
            kind = self.type_name()
            self.next()
            return syntax.TypeName((("", kind),), token.at)
        columns = self.several(self._column_type) if not self.token.is_sign(")") else ()
        self.expect_sign(")", "after a type")
        return syntax.TypeName(columns, token.at)

    def type_name(self) -> str:
        """Read the name of a scalar type."""
        token = self.next()
        if token.kind != "name":
            raise self.error(f"expected a type, found {token}", at=token.at)
        kind = TYPE_NAMES.get(token.text.lower(), token.text.lower())
        if kind not in SCALAR_TYPES:
            raise self.unknown("type", token.text, SCALAR_TYPES, at=token.at)
        return kind

    def _column_type(self) -> tuple[str, str]:
        if self.token.is_sign("*"):
            self.next()
            return "*", ""
        name = self.name("a column name")
        self.expect_sign(":", "between a column's name and type")
        return name, self.type_name()

    def column_types(self, where: str) -> tuple[tuple[str, str], ...]:
        """Read ``(name: type, …)``."""
        self.expect_sign("(", where)
        return self._items(self._column_type, ")", "after the columns")

    def _items(self, read: Callable[[], Item], close: str, where: str) -> tuple[Item, ...]:
        """Read items with commas between them, or none, up to the sign that closes them."""
        found: list[Item] = []
        while not self.token.is_sign(close):
            found.append(read())
            if not self.sign(","):
                break
        self.expect_sign(close, where)
        return tuple(found)

    def _datatable(self, token: Token) -> syntax.DataTable:
        columns = self.column_types("after datatable")
        self.expect_sign("[", "before the values of a datatable")
        values = self._items(self.expression, "]", "after the values of a datatable")
        return syntax.DataTable(columns, values, token.at)

    def _externaldata(self, token: Token) -> syntax.ExternalData:
        columns = self.column_types("after externaldata")
        self.expect_sign("[", "before the addresses of externaldata")
        addresses = self.several(self.expression)
        self.expect_sign("]", "after the addresses of externaldata")
        options = self.properties() if self.word("with") else ()
        return syntax.ExternalData(columns, addresses, options, token.at)

    def properties(self) -> tuple[tuple[str, syntax.Expression], ...]:
        """Read ``(name = value, …)``; a name may come several times."""
        self.expect_sign("(", "before properties")
        found: list[tuple[str, syntax.Expression]] = []
        while not self.token.is_sign(")"):
            name = self.name("a property")
            self.expect_sign("=", "after a property's name")
            found.append((name, self.expression()))
            if not self.sign(","):
                break
        self.expect_sign(")", "after properties")
        return tuple(found)

    def _dynamic(self, token: Token) -> syntax.Literal:
        self.next()
        value = self._json()
        self.expect_sign(")", "after a dynamic literal")
        return syntax.Literal("dynamic", value, token.at)

    def _json(self) -> Any:
        with self.nested():
            if self.sign("["):
                return self._json_items("]", self._json)
            if self.sign("{"):
                return dict(self._json_items("}", self._json_entry))
        if self.token.is_word("null", "true", "false"):
            return {"null": None, "true": True, "false": False}[self.next().text]
        if self.sign("-"):
            return -self.literal().value
        found = self.literal()
        return found.value if found.type in ("string", "long", "real", "bool", "int") else found

    def _json_entry(self) -> tuple[str, Any]:
        if self.token.kind not in ("string", "name"):
            raise self.error(f"expected a key in quotes, found {self.token}")
        key = self._strings().value if self.token.kind == "string" else self.next().text
        self.expect_sign(":", "after a key")
        return key, self._json()

    def _json_items(self, closing: str, item: Any) -> list[Any]:
        found: list[Any] = []
        while not self.token.is_sign(closing):
            found.append(item())
            if not self.sign(","):
                break
        self.expect_sign(closing, "in a dynamic literal")
        return found

    def function(self, at: int) -> syntax.Function:
        """Read ``(parameters) { body }``."""
        parameters = self.parameters()
        self.expect_sign("{", "before a function's body")
        with self.nested():
            body = self.script(until="}")
        self.expect_sign("}", "after a function's body")
        return syntax.Function(parameters, body, at)

    def parameters(self) -> tuple[syntax.Parameter, ...]:
        self.expect_sign("(", "before parameters")
        return self._items(self._parameter, ")", "after parameters")

    def _parameter(self) -> syntax.Parameter:
        start = self.token.at
        name = self.name("a parameter")
        self.expect_sign(":", "between a parameter's name and type")
        if self.token.is_sign("("):
            return syntax.Parameter(name, "table", self.column_types("of a table"), None, start)
        kind = self.type_name()
        default = self.expression() if self.sign("=") else None
        return syntax.Parameter(name, kind, None, default, start)


def _place_of(node: syntax.Expression) -> str | None:
    """Return the name of the database that a call such as ``database("x")`` stands for, if it is known here."""
    match node:
        case syntax.Call(name, arguments) if name in PLACES:
            match arguments[-1:]:
                case (syntax.Literal("string", str(place)),):
                    return place
                case ():
                    return ""
    return None
