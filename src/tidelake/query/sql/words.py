"""Write for Spark what the generator would write otherwise than it was meant.

The generator takes percentiles within a group for approximate ones, and leaves out arguments that it does not know. It
does not change what a tree means.
"""

from __future__ import annotations

from sqlglot import exp


def for_spark(tree: exp.Expr) -> None:
    """Change a tree in place so that Spark is given what was asked."""
    kinds = (exp.WithinGroup, exp.ArgMax, exp.ArgMin, exp.GroupConcat, exp.Trunc)
    for node in reversed(list(tree.find_all(*kinds))):
        match node:
            case exp.WithinGroup() if isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
                name = "percentile_cont" if isinstance(node.this, exp.PercentileCont) else "percentile_disc"
                call = exp.Anonymous(this=name, expressions=[node.this.this])
                order = node.expression.sql("spark").strip()
                node.replace(exp.Var(this=f"{call.sql('spark')} WITHIN GROUP ({order})"))
            case exp.ArgMax() | exp.ArgMin() if node.args.get("count") is not None:
                name = "max_by" if isinstance(node, exp.ArgMax) else "min_by"
                node.replace(exp.Anonymous(this=name, expressions=[node.this, node.expression, node.args["count"]]))
            case exp.Trunc() if node.args.get("decimals") is not None:
                down, up = (
                    exp.Anonymous(this=name, expressions=[node.this.copy(), node.args["decimals"].copy()])
                    for name in ("floor", "ceil")
                )
                above = exp.GTE(this=node.this.copy(), expression=exp.Literal.number(0))
                node.replace(exp.Case(ifs=[exp.If(this=above, true=down)], default=up))
            case exp.GroupConcat() if node.args.get("separator") is None:
                node.set("separator", exp.Literal.string(""))
