-- Groups, and the whole.
select service, count(*) as n from (select col1 as service from values ('a'), ('a'), ('b')) group by service with rollup order by service;
-- service | n
-- ∅ | 3
-- a | 2
-- b | 1

-- All sets of keys.
select a, b, count(*) as n from values (1, 1), (1, 2) as t(a, b) group by a, b with cube order by a, b;
-- a | b | n
-- ∅ | ∅ | 2
-- ∅ | 1 | 1
-- ∅ | 2 | 1
-- 1 | ∅ | 2
-- 1 | 1 | 1
-- 1 | 2 | 1

-- Sets behind the keys they are of.
select a, b, sum(v) as s from values (1, 1, 10), (1, 2, 20) as t(a, b, v) group by a, b grouping sets (a, (a, b)) order by a, b;
-- a | b | s
-- 1 | ∅ | 30
-- 1 | 1 | 10
-- 1 | 2 | 20

-- Sets by the places of columns.
select a, b, count(1) as n from values (1, 1), (1, 2) as t(a, b) group by grouping sets ((1), (2)) order by a, b;
-- a | b | n
-- ∅ | 1 | 1
-- ∅ | 2 | 1
-- 1 | ∅ | 2

-- Which keys a row leaves out.
select a, grouping_id() as g, grouping__id as h, grouping(a) as i from values (1, 2), (1, 3) as t(a, b) group by rollup(a, b) order by g, a;
-- a | g | h | i
-- 1 | 0 | 0 | 0
-- 1 | 0 | 0 | 0
-- 1 | 1 | 1 | 0
-- ∅ | 3 | 3 | 1

-- A pivot: what no row has is null.
select * from (select col1 as who, col2 as what, col3 as n from values ('x', 'a', 1), ('x', 'b', 2), ('y', 'a', 3)) pivot (sum(n) for what in ('a', 'b' as bee)) order by who;
-- who | a | bee
-- x | 1 | 2
-- y | 3 | ∅

-- A pivot of several aggregates, over two keys.
select * from values (1, 'a', 5), (1, 'a', 7), (2, 'b', 9) as t(k, w, n) pivot (sum(n) as s, count(*) as c for (k, w) in ((1, 'a') as one, (2, 'b') as two));
-- one_s | one_c | two_s | two_c
-- 12 | 2 | 9 | 1

-- An aggregate that no limit may reach into.
select std(bytes) is null as a, every(bytes > 1000) as b, max(bytes) > 100 as c from obs.logs limit 1;
-- a | b | c
-- false | false | true

-- The percentile of a descending order, also over a window.
select distinct percentile_cont(0.25) within group (order by x desc) over (partition by 1) as a, percentile_disc(0.25) within group (order by x desc) over (partition by 1) as b, percentile_disc(0.5) within group (order by x) over (partition by 1) as c from values (1), (2), (3), (4) as t(x);
-- a | b | c
-- 3.25 | 4 | 2

-- Moments of all rows, not of a sample.
select round(kurtosis(x), 4) as k, round(skewness(x), 4) as s from values (1), (10), (100), (10), (1) as t(x);
-- k | s
-- 0.1943 | 1.4581

-- The correlation of what does not vary is not known.
select corr(a, b) as c, corr(b, b) as d from values (1, 2), (1, 3) as t(a, b);
-- c | d
-- ∅ | 1

-- Texts are put together without anything between, unless it is said.
select listagg(x) within group (order by x) as a, listagg(x, '-') within group (order by x desc) as b, listagg(distinct x) within group (order by x) as c from values ('b'), ('a'), ('b') as t(x);
-- a | b | c
-- abb | b-b-a | ab

-- Rows in which none of several is null.
select count(a, b) as n from values (1, 2), (null, 3), (4, null) as t(a, b);
-- n
-- 1

-- Sums that may be too large.
select try_sum(x) as a, try_avg(y) as b from values (9223372036854775807L, 1), (1L, 2) as t(x, y);
-- a | b
-- ∅ | 1.5

-- The aggregates of true and false.
select every(x) as a, some(x) as b, any(x) as c from values (true), (false), (null) as t(x);
-- a | b | c
-- false | true | true

-- Several sets of no rows give no row; the whole alone gives one.
select a, count(*) as n from values (1) as t(a) where a > 5 group by rollup(a);
-- a | n

-- How many hold: what is not known does not.
select count_if(x > 1) as a, count_if(x is null) as b from values (null), (1) as t(x) where x is null;
-- a | b
-- 0 | 1

-- Keys of several sets are counted once.
select grouping_id() as g, a, b from values (1, 2) as t(a, b) group by grouping sets ((a, b), (a), ()) order by g;
-- g | a | b
-- 0 | 1 | 2
-- 1 | 1 | ∅
-- 3 | ∅ | ∅

-- The mean of times is a count of seconds.
select avg(t) as a from values (timestamp '1970-01-01 00:00:10'), (timestamp '1970-01-01 00:00:20') as v(t);
-- a
-- 15
