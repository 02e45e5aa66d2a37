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

-- What is divided means what it means elsewhere: text that is cast is cut off, and not rounded.
select cast(a / cast(s as int) as string) as a, cast(a div cast(s as int) as string) as b, cast('x' as decimal(4,2)) / a as c, cast(try_divide(try_add(a, 1), 3) as string) as d from values (cast(2 as decimal(4,2)), '3.7') t(a, s);
-- a | b | c | d
-- 0.6666666666667 | 0 | ∅ | 1.000000

-- Quotients of quotients.
select cast((a / b) / (b / a) as string) as a, cast(a / b / b as string) as b, cast(try_divide(try_divide(a, 3), 3) as string) as c, cast((a / b) * 100 as string) as d from values (cast(2 as decimal(4,2)), 3.0) t(a, b);
-- a | b | c | d
-- 0.4444446666666667 | 0.222222333 | 0.22222233 | 66.666700

-- Parts of times are whole numbers of 32 bits, and seconds are decimals.
select cast(a / year(date '2024-01-01') as string) as a, cast(a / day(date '2024-01-03') as string) as b, cast(extract(second from timestamp '2024-01-01 00:00:01.5') / 2 as string) as c from values (cast(2 as decimal(4,2))) t(a);
-- a | b | c
-- 0.0009881422925 | 0.6666666666667 | 0.75000000

-- Text of reals as Java reads it.
select sum(cast(s as double)) as a, count(cast(s as double)) as b, count(cast(s as float)) as c, count(cast(s as decimal(10,2))) as d from values ('1d'), ('1.5F'), (' 2d '), ('0x1p3'), ('1dd'), ('1_000'), ('d'), ('1e'), ('1e1') t(s);
-- a | b | c | d
-- 22.5 | 5 | 5 | 1

-- A literal and a calculation with such a text, and decimals with exponents.
select cast('1d' as double) as a, '1f' + 1 as b, '1d' = 1.0D as c, cast(s as decimal(12,3)) as d, cast('1e999999999' as decimal(10,2)) as e from values ('123456789.987654321e-3') t(s);
-- a | b | c | d | e
-- 1 | 2 | true | 123457 | ∅

-- Letters that become several, and one that depends on its place.
select upper(s) as u, lower(s) as l, initcap(s) as i from values ('straße'), ('ΟΔΥΣΣΕΥΣ ΟΣ'), ('ﬁn'), ('äÖ éÉ') t(s);
-- u | l | i
-- STRASSE | straße | Straße
-- ΟΔΥΣΣΕΥΣ ΟΣ | οδυσσευς ος | Οδυσσευς Ος
-- FIN | ﬁn | Fin
-- ÄÖ ÉÉ | äö éé | Äö Éé

-- A capital i with a dot is two characters in lower case.
select length(lower(s)) as n, hex(lower(s)) as h from values ('İ') t(s);
-- n | h
-- 2 | 69CC87

-- Zipped arrays have the names of their columns, or their places.
select arrays_zip(a, b) as x, arrays_zip(t.a, array(7)) as y, arrays_zip(a, b)[0].b as z, size(arrays_zip(array(), array())) as n, arrays_zip(a, cast(null as array<int>)) is null as m from values (array(1, 2), array('x')) t(a, b);
-- x | y | z | n | m
-- [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}] | [{'a': 1, '1': 7}, {'a': 2, '1': None}] | x | 0 | true

-- Any value may be null, unless nulls are passed over.
select any_value(x) as a, any_value(x) ignore nulls as b, any_value(x, true) as c from values (null), (2) t(x);
-- a | b | c
-- ∅ | 2 | 2

-- What a function is given means what it means elsewhere.
select round(skewness(length(regexp_replace(s, '(a)', '$1$1'))), 4) as a, timestampdiff(month, make_timestamp(2024, 1, 1, 0, 0, 0), timestamp_seconds(1800000000)) as b, cast(regexp_replace('12', '(1)', '$1$1') as int) as c from values ('a'), ('aa'), ('aaaab') t(s);
-- a | b | c
-- 0.4703 | 36 | 112

-- Rows of a function that makes a list.
select x from explode(split('a,b', ',')) t(x) order by x;
-- x
-- a
-- b

-- A mean of decimals is exact, also of many digits, after grouping and over a window.
select cast(avg(x) as string) as a, cast(avg(distinct x) as string) as b, cast(avg(x) filter (where x > 1) as string) as c, cast(max(m) as string) as d from (select x, avg(x) over () as m from values (12345678901234567.89), (0.10), (0.10) t(x)) having avg(x) > 1;
-- a | b | c | d
-- 4115226300411522.696667 | 6172839450617283.995000 | 12345678901234567.890000 | 4115226300411522.696667

-- A decimal without a digit before its point is shown with a zero.
select cast(avg(x) as string) as a, concat(cast(0.5 as decimal(2,2)), 'x') as b, cast(0.5 as decimal(3,3)) || 'y' as c from values (0.1), (0.2), (0.2) t(x);
-- a | b | c
-- 0.16667 | 0.50x | 0.500y

-- Quotients of sums, in conditions and orders.
select g, cast(sum(x) / count(*) as string) as m from values (1, 1.5), (2, 2.25), (1, 2.0) t(g, x) group by g order by sum(x) / 3;
-- g | m
-- 2 | 2.25000000000000000000000
-- 1 | 1.75000000000000000000000

-- The length of a text as days.
select date_add(date '2011-11-11', length(s)) as a, date_sub(date '2011-11-11', length(s)) as b from values ('007') t(s);
-- a | b
-- 2011-11-14 | 2011-11-08
