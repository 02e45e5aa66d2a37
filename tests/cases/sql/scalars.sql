-- Division is of reals.
select 7 / 2 as a, 7 div 2 as b, 7 % 3 as c, -7 % 3 as d;
-- a | b | c | d
-- 3.5 | 3 | 1 | -1

-- What is divided by zero is null.
select 1 / 0 as a, 1 % 0 as b, 1.5 / 0 as c;
-- a | b | c
-- ∅ | ∅ | ∅

-- What cannot be cast is null.
select cast('abc' as int) as a, cast('12' as int) as b, cast('x' as timestamp) as c;
-- a | b | c
-- ∅ | 12 | ∅

-- A cast to a whole number cuts off.
select cast(2.7 as int) as a, cast(-2.7 as int) as b, cast(latency as int) as c from obs.logs where ts = '2026-01-01T03:00:00Z';
-- a | b | c
-- 2 | -2 | 3

-- Text functions.
select upper('abc') as a, length('straße') as b, trim('  x ') as c, replace('aXa', 'X', 'b') as d, concat('a', 'b', 'c') as e;
-- a | b | c | d | e
-- ABC | 6 | x | aba | abc

-- Parts of text.
select substring('abcdef', 2, 3) as a, left('abc', 2) as b, right('abc', 2) as c, instr('hello', 'l') as d;
-- a | b | c | d
-- bcd | ab | bc | 3

-- Concatenation with null is null.
select concat('a', null) as a, 'a' || 'b' as b, concat_ws('-', 'a', null, 'b') as c;
-- a | b | c
-- ∅ | ab | a-b

-- Splitting text.
select split('a,b,c', ',')[1] as b, size(split('a,b', ',')) as n;
-- b | n
-- b | 2

-- Regular expressions take out and put in.
select regexp_extract('id=42;', 'id=([0-9]+)', 1) as a, regexp_replace('a1b2', '[0-9]', '#') as b;
-- a | b
-- 42 | a#b#

-- Numbers are rounded away from zero at the half.
select round(2.5) as a, round(-2.5) as b, round(1.2345, 2) as c, floor(-1.5) as d, ceil(1.2) as e;
-- a | b | c | d | e
-- 3 | -3 | 1.23 | -2 | 2

-- Numeric functions.
select abs(-3) as a, power(2, 10) as b, sqrt(9) as c, greatest(1, 5, 3) as d, least(4, 2) as e;
-- a | b | c | d | e
-- 3 | 1024 | 3 | 5 | 2

-- Null functions.
select coalesce(null, 2) as a, nullif(1, 1) as b, ifnull(null, 'x') as c, nvl(3, 4) as d;
-- a | b | c | d
-- 2 | ∅ | x | 3

-- Parts of times.
select hour(ts) as h, minute(ts) as m, dayofweek(ts) as w, quarter(ts) as q from obs.logs where ts = '2026-01-02T05:00:00Z';
-- h | m | w | q
-- 5 | 0 | 6 | 1

-- Times are truncated.
select date_trunc('HOUR', timestamp '2026-03-04 05:06:07') as a, date_trunc('MONTH', timestamp '2026-03-04 05:06:07') as b;
-- a | b
-- 2026-03-04 05:00:00Z | 2026-03-01 00:00:00Z

-- Days between dates.
select datediff(date '2026-03-01', date '2026-02-01') as d, date_add(date '2026-02-28', 1) as e;
-- d | e
-- 28 | 2026-03-01

-- A time as a date and as text.
select to_date(ts) as d, date_format(ts, 'yyyy-MM-dd HH:mm') as t from obs.logs where ts = '2026-01-02T05:00:00Z';
-- d | t
-- 2026-01-02 | 2026-01-02 05:00

-- Seconds since 1970.
select unix_timestamp(timestamp '2026-01-01 00:00:00') as s;
-- s
-- 1767225600

-- Boolean logic has three values.
select null and false as a, null or true as b, not null as c, null = null as d;
-- a | b | c | d
-- false | true | ∅ | ∅

-- Distances of vectors.
select id, round(l2_distance(v, array(1, 0, 0)), 4) as d from vec.items where v is not null order by d, id;
-- id | d
-- 1 | 0
-- 2 | 1.4142
-- 3 | 4.4721

-- Cosine distance does not mind length.
select id, round(cosine_distance(v, array(3, 4, 0)), 4) as d from vec.items where v is not null order by id;
-- id | d
-- 1 | 0.4
-- 2 | 0.2
-- 3 | 0

-- The inner product.
select id, inner_product(v, array(1, 1, 1)) as p from vec.items where v is not null order by id;
-- id | p
-- 1 | 1
-- 2 | 1
-- 3 | 7

-- A position of nought is the first, $1 is a group, and the text of a time has no zone.
select substr('hello', 0, 2) as a, regexp_replace('a1b2', '([0-9])', '<$1>') as b, cast(ts as string) as c, pmod(-7, 3) as d, isnull(bytes) as e, timestamp_seconds(5) as f from obs.logs where ts = '2026-01-01T01:00:00Z';
-- a | b | c | d | e | f
-- he | a<1>b<2> | 2026-01-01 01:00:00 | 2 | false | 1970-01-01 00:00:05Z

-- What has no root or logarithm is no error.
select sqrt(-1) as a, ln(0) as b, log10(0) as c, log2(8) as d;
-- a | b | c | d
-- nan | ∅ | ∅ | 3
