-- Groups by a column; nulls are a group.
select service, count(*) as n from obs.logs group by service order by service;
-- service | n
-- ∅ | 6
-- auth | 30
-- db | 30
-- web | 30

-- Groups by position and by name.
select service as s, status, count(*) as n from obs.logs where service = 'web' group by 1, status order by status;
-- s | status | n
-- web | 200 | 14
-- web | 404 | 8
-- web | 500 | 8

-- Having filters groups.
select service, count(*) as n from obs.logs group by service having count(*) > 30 order by service;
-- service | n

-- Sums of whole numbers are whole.
select sum(status) as s, sum(bytes) as b from obs.logs;
-- s | b
-- 31296 | 3923000

-- Averages leave out nulls.
select avg(bytes) as a, count(bytes) as c, count(*) as n from obs.logs where ts < '2026-01-01T08:00:00Z';
-- a | c | n
-- 3500 | 6 | 8

-- Least and most of every type.
select min(ts) as a, max(ts) as b, min(service) as c, max(latency) as d, min(ok) as e from obs.logs;
-- a | b | c | d | e
-- 2026-01-01 00:00:00Z | 2026-01-04 23:00:00Z | auth | 118.75 | false

-- Aggregates of nothing.
select count(*) as n, sum(status) as s, max(ts) as t from obs.logs where status = 1;
-- n | s | t
-- 0 | ∅ | ∅

-- Groups of nothing.
select service, count(*) as n from obs.logs where status = 1 group by service;
-- service | n

-- Distinct counts.
select count(distinct service) as n, count(distinct status) as m from obs.logs;
-- n | m
-- 3 | 3

-- Conditional counts.
select count_if(status >= 400) as bad, sum(case when ok then 1 else 0 end) as good from obs.logs;
-- bad | good
-- 48 | 72

-- An aggregate with a filter.
select count(*) filter (where status = 500) as n from obs.logs;
-- n
-- 24

-- Groups by an expression of time.
select date_trunc('DAY', ts) as day, count(*) as n from obs.logs where service is not null group by 1 order by 1;
-- day | n
-- 2026-01-01 00:00:00Z | 22
-- 2026-01-02 00:00:00Z | 23
-- 2026-01-03 00:00:00Z | 22
-- 2026-01-04 00:00:00Z | 23

-- Groups by parts of a time.
select year(ts) as y, month(ts) as m, day(ts) as d, count(*) as n from obs.logs group by 1, 2, 3 order by 3;
-- y | m | d | n
-- 2026 | 1 | 1 | 24
-- 2026 | 1 | 2 | 24
-- 2026 | 1 | 3 | 24
-- 2026 | 1 | 4 | 24

-- Standard deviation.
select round(stddev(latency), 4) as s, round(var_pop(latency), 4) as v from obs.logs;
-- s | v
-- 34.821 | 1199.87

-- A rollup adds totals.
select service, status, count(*) as n from obs.logs where service = 'web' and status > 200 group by rollup(service, status) order by 1, 2;
-- service | status | n
-- ∅ | ∅ | 16
-- web | ∅ | 16
-- web | 404 | 8
-- web | 500 | 8

-- Collected values.
select size(collect_set(status)) as n from obs.logs;
-- n
-- 3

-- A rank within a partition.
select service, ts from (select service, ts, row_number() over (partition by service order by ts desc) as r from obs.logs where service is not null) where r = 1 order by service;
-- service | ts
-- auth | 2026-01-04 21:00:00Z
-- db | 2026-01-04 23:00:00Z
-- web | 2026-01-04 22:00:00Z

-- A running sum.
select ts, sum(status) over (order by ts) as s from obs.logs where ts < '2026-01-01T04:00:00Z' order by ts;
-- ts | s
-- 2026-01-01 00:00:00Z | 200
-- 2026-01-01 01:00:00Z | 604
-- 2026-01-01 02:00:00Z | 1104
-- 2026-01-01 03:00:00Z | 1304

-- The row before.
select ts, status - lag(status) over (order by ts) as d from obs.logs where ts < '2026-01-01T04:00:00Z' order by ts;
-- ts | d
-- 2026-01-01 00:00:00Z | ∅
-- 2026-01-01 01:00:00Z | 204
-- 2026-01-01 02:00:00Z | 96
-- 2026-01-01 03:00:00Z | -300

-- A moving average.
select ts, avg(latency) over (order by ts rows between 1 preceding and current row) as a from obs.logs where ts < '2026-01-01T04:00:00Z' order by ts;
-- ts | a
-- 2026-01-01 00:00:00Z | 0
-- 2026-01-01 01:00:00Z | 0.625
-- 2026-01-01 02:00:00Z | 1.875
-- 2026-01-01 03:00:00Z | 3.125

-- Ranks with ties.
select name, tier, dense_rank() over (order by team) as r from obs.services where tier is not null order by name;
-- name | tier | r
-- auth | 1 | 2
-- mail | 3 | 1
-- web | 2 | 1

-- Qualify filters by a window.
select service, ts from obs.logs where service is not null qualify row_number() over (partition by service order by ts) = 1 order by service;
-- service | ts
-- auth | 2026-01-01 03:00:00Z
-- db | 2026-01-01 02:00:00Z
-- web | 2026-01-01 01:00:00Z

-- percentile lies between two values, percentile_approx is one of them.
select percentile(latency, 0.5) as p, percentile_approx(latency, 0.5) as a, median(latency) as m from obs.logs where ts < '2026-01-01T04:00:00Z';
-- p | a | m
-- 1.875 | 1.25 | 1.875
