-- Decimals are divided exactly, with Spark's digits.
select cast(1.0 / 3.0 as string) as a, cast(cast(1 as decimal(10,2)) / cast(3 as decimal(10,2)) as string) as b, cast(cast(99999999999999999999 as decimal(38,0)) / 7 as string) as c;
-- a | b | c
-- 0.333333 | 0.3333333333333 | 14285714285714285714.142857

-- The whole part and the rest of a division of many digits.
select cast(-9999999999999999999999 as decimal(38,0)) div 1000000000000000000000 as a, cast(cast(-9999999999999999999999 as decimal(38,0)) % 1000000000000000000000 as string) as b;
-- a | b
-- -9 | -999999999999999999999

-- A sum of products keeps all digits behind the point.
select cast(sum(a * b) as string) as n from values (cast(1.25 as decimal(10,2)), cast(1.25 as decimal(10,2))) t(a, b);
-- n
-- 1.5625

-- Rows that are listed with unlike digits make one column.
select cast(sum(i + f) as string) as n from values (1, 1.5), (2, 1.2345) t(i, f);
-- n
-- 5.7345

-- A decimal with an exponent.
select 12E-3BD as n;
-- n
-- 0.012

-- What stands beside the least may be null, alone and among several.
select min_by(x, y) as a, min_by(x, y, 2)[0] is null as b from values (null, 10), ('b', 20), ('c', 30) t(x, y);
-- a | b
-- ∅ | true

-- Times with zones by distance and by name, and years as Spark reads them.
select cast('2024-01-01 10:00:00UTC+8' as timestamp) = timestamp '2024-01-01 02:00:00' as a, cast('2024-10-27 02:30:00 Europe/Paris' as timestamp) = timestamp '2024-10-27 00:30:00' as b, cast('2024' as date) = date '2024-01-01' as c, cast('1997/01/02' as date) as d, year(cast('-0044-03-15' as date)) as e;
-- a | b | c | d | e
-- true | true | true | ∅ | -44

-- Words for times.
select date 'tomorrow' > date 'today' as a, timestamp 'yesterday' < timestamp 'now' as b, cast('today' as date) = current_date() as c, date 'epoch' = date '1970-01-01' as d;
-- a | b | c | d
-- true | true | true | true

-- A literal that is no date.
select date '2024-13-01';
-- error: '2024-13-01' is not a date such as 2026-01-31

-- JSON is read strictly by its type, and an object as a list of one.
select from_json('{"a":1.5,"b":2}', 'a int, b string').a as a, from_json('{"a": 1}', 'array<struct<a:int>>')[0].a as b, from_json('[1,"x"]', 'array<int>') as c;
-- a | b | c
-- ∅ | 1 | ∅

-- Nulls in lists.
select array_position(array(1, 2), 3) as a, array_contains(array(1, null), 2) as b, size(array_remove(array(1, 2, null), 1)) as c, size(array_distinct(array(1, 1, null, null))) as d, reverse(array(1, 2))[0] as e, flatten(array(array(1), null)) as f, sequence(3, 1)[0] as g;
-- a | b | c | d | e | f | g
-- 0 | ∅ | 2 | 2 | 2 | ∅ | 3

-- Text where a time is wanted.
select datediff('2024-01-05 x', '2024') as a, months_between('2024-02', '2024-01') as b, hour('2024-01-01 10:00:00') as c, timestampdiff(month, timestamp '2024-01-31', timestamp '2024-02-29') as d;
-- a | b | c | d
-- 4 | 1 | 10 | 0

-- Times as numbers and numbers as times.
select cast(timestamp '2024-01-01 10:00:00.5' as double) = 1704103200.5D as a, cast(timestamp '1969-12-31 23:59:58.5' as bigint) as b, cast(1.5 as timestamp) = timestamp '1970-01-01 00:00:01.5' as c, cast(2147483648 as int) as d;
-- a | b | c | d
-- true | -2 | true | -2147483648

-- Zones there and back.
select from_utc_timestamp(timestamp '2024-01-01 10:00:00', 'PST') = timestamp '2024-01-01 02:00:00' as a, to_utc_timestamp(timestamp '2024-07-01 10:00:00', '+08:00') = timestamp '2024-07-01 02:00:00' as b;
-- a | b
-- true | true

-- A real beside decimals makes a column of reals.
select cast(sum(x) as string) as a, cast(max(y) as string) as b from values (1.5, 1.25), (cast(2.125 as double), 1) t(x, y);
-- a | b
-- 3.625 | 1.25

-- A decimal times a real is a real.
select sum(a * b) = 0.3125D as x, sum(coalesce(b, a)) = 0.125D as y from values (cast(2.5 as decimal(10,2)), cast(0.125 as double)) t(a, b);
-- x | y
-- true | true

-- A union of whole numbers with reals that are listed beside decimals.
with r as (select * from values (0.5), (cast('1e200' as double)) t(x)), i as (select * from values (7) t(x)) select count(*) as n, max(x) > 1e199 as b from (select x from r union all select x from i);
-- n | b
-- 3 | true
