-- A column that is not there, and what was perhaps meant.
select servce from obs.logs;
-- error: there is no column 'servce', did you mean 'service'?

-- A column of another table.
select l.team from obs.logs l join obs.services s on l.service = s.name;
-- error: there is no column 'team'; there are ts, service, status, bytes, latency, ok, message, attributes

-- A table that is not there.
select * from obs.log;
-- error: there is no table 'obs.log', did you mean 'obs.logs'?

-- A namespace that is not there.
select * from nowhere.logs;
-- error: there is no table 'nowhere.logs', did you mean 'obs.logs'?

-- An alias that is not there.
select x.ts from obs.logs l;
-- error: there is no table or alias 'x' here

-- A column that several sources have.
select tier from obs.services a join obs.services b on a.name = b.name;
-- error: 'tier' is ambiguous: say of which table

-- A query that ends early.
select * from obs.logs where;
-- error: expected an expression, found the end

-- A word in the wrong place.
select ts form obs.logs where;
-- error: expected something else, found 'obs'

-- A parenthesis that is not closed.
select count(* from obs.logs;
-- error: expected ), found 'obs'

-- Nothing but a change of data.
delete from obs.logs;
-- error: only queries can be run: expected select or with, found 'delete', did you mean 'select'?

-- Two queries at once cannot be asked.
select 1 union;
-- error: expected an expression, found the end

-- A dynamic value has no order.
select ts from obs.logs order by attributes:http.status;
-- error: 'http.status' is dynamic and has no order: say as what, such as http.status::double or http.status::string

-- A text that cannot be a time: engines would find nothing, or fail.
select count(*) from obs.logs where ts > 'garbage';
-- error: 'garbage' is not a time such as 2026-01-31 12:00:00

-- A list of no values.
select count(*) from obs.logs where status in ();
-- error: in () needs at least one value

-- A select of nothing.
select 1 union select;
-- error: select needs at least one column or *

-- A name that is a word of SQL.
select when from odd;
-- error: expected something else, found 'when': a name that is a word of SQL stands in backquotes

-- A table is missing.
select * from;
-- error: expected a table, found the end

-- Columns made rows.
select * from (select service, status from obs.logs) unpivot (v for n in (status));
-- error: unpivot is not supported

-- One name for two common table expressions.
with a as (select 1 as x), a as (select 2 as x) select * from a;
-- error: 'a' is the name of two common table expressions

-- More names than columns.
select * from obs.services as s(a, b);
-- error: s has 3 columns, and 2 names were given

-- A column that is neither grouped by nor inside of an aggregate.
select service, count(*) from obs.logs group by status order by 1 limit 1;
-- error: service

-- A function that is given too little.
select width_bucket(1, 2) from obs.logs;
-- error: width_bucket
