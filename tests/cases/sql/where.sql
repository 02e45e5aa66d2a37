-- Equality of text.
select count(*) as n from obs.logs where service = 'auth';
-- n
-- 30

-- Inequality does not find nulls.
select count(*) as n from obs.logs where service <> 'auth';
-- n
-- 60

-- Null-safe equality finds nulls.
select count(*) as n from obs.logs where service <=> null;
-- n
-- 6

-- A range of numbers, the literal on the left.
select count(*) as n from obs.logs where 400 <= status and 500 > status;
-- n
-- 24

-- Between includes both ends.
select count(*) as n from obs.logs where latency between 10 and 12.5;
-- n
-- 3

-- Not between.
select count(*) as n from obs.logs where latency not between 10 and 100;
-- n
-- 23

-- One of several.
select count(*) as n from obs.logs where status in (404, 500);
-- n
-- 48

-- None of several does not find nulls.
select count(*) as n from obs.logs where service not in ('auth', 'web');
-- n
-- 30

-- Null.
select count(*) as n from obs.logs where bytes is null;
-- n
-- 14

-- Not null.
select count(*) as n from obs.logs where bytes is not null and service is null;
-- n
-- 5

-- A boolean column is a condition by itself.
select count(*) as n from obs.logs where ok;
-- n
-- 72

-- A boolean column negated.
select count(*) as n from obs.logs where not ok and status = 500;
-- n
-- 24

-- Or is not pushed unless both sides can be.
select count(*) as n from obs.logs where status = 500 or length(message) > 20;
-- n
-- 38

-- Or of two pushed sides.
select count(*) as n from obs.logs where status = 500 or latency < 3;
-- n
-- 26

-- Times compare with text.
select count(*) as n from obs.logs where ts >= '2026-01-02' and ts < '2026-01-02T06:00:00Z';
-- n
-- 6

-- Times compare with typed literals.
select count(*) as n from obs.logs where ts > timestamp '2026-01-04 20:00:00';
-- n
-- 3

-- Times compare with dates.
select count(*) as n from obs.logs where ts < date '2026-01-02';
-- n
-- 24

-- Intervals are added to times.
select count(*) as n from obs.logs where ts >= timestamp '2026-01-01 00:00:00' + interval 3 days - interval 1 hour;
-- n
-- 25

-- Months are added to dates.
select count(*) as n from obs.logs where ts >= date '2025-12-03' + interval 1 month;
-- n
-- 48

-- A time from text of another zone.
select count(*) as n from obs.logs where ts = '2026-01-01T03:00:00+02:00';
-- n
-- 1

-- The clock is one for a whole query.
select count(*) as n from obs.logs where ts > now();
-- n
-- 0

-- Like with a beginning.
select count(*) as n from obs.logs where message like 'GET%';
-- n
-- 20

-- Like with a part; case counts.
select count(*) as n from obs.logs where message like '%imeout%';
-- n
-- 38

-- Like with one letter open.
select count(*) as n from obs.logs where message like 'cache m_ss';
-- n
-- 19

-- Like without a wildcard is equality.
select count(*) as n from obs.logs where message like 'cache miss';
-- n
-- 19

-- Like with an end.
select count(*) as n from obs.logs where message like '%30s';
-- n
-- 19

-- Ilike does not mind case.
select count(*) as n from obs.logs where message ilike '%TIMEOUT%';
-- n
-- 38

-- A regular expression matches anywhere.
select count(*) as n from obs.logs where message rlike 'time.*[0-9]+s$';
-- n
-- 19

-- has finds a whole word, whatever its case.
select count(*) as n from obs.logs where has(message, 'timeout');
-- n
-- 38

-- has does not find part of a word.
select count(*) as n from obs.logs where has(message, 'time');
-- n
-- 0

-- startswith and contains.
select count(*) as n from obs.logs where startswith(message, 'user') or contains(message, 'miss');
-- n
-- 38

-- A condition on an expression of a column is the engine's.
select count(*) as n from obs.logs where status + 1 = 501;
-- n
-- 24

-- A comparison of two columns.
select count(*) as n from obs.logs where bytes > latency * 900;
-- n
-- 0

-- A condition that is never true reads nothing.
select count(*) as n from obs.logs where status = 200 and status = 404;
-- n
-- 0

-- A condition on a subquery's column reaches the table.
select count(*) as n from (select service as s, status as c from obs.logs) where s = 'web' and c = 404;
-- n
-- 8

-- A condition on a group's key reaches the table; on its count it stays.
select * from (select service, count(*) as n from obs.logs group by service) where service = 'web' and n > 1;
-- service | n
-- web | 30

-- A condition above a limit stays above it.
select count(*) as n from (select * from obs.logs order by ts limit 10) where status = 500;
-- n
-- 2

-- A condition above a window stays above it.
select ts from (select ts, status, row_number() over (order by ts) as r from obs.logs) where status = 500 and r < 8 order by ts;
-- ts
-- 2026-01-01 02:00:00Z
-- 2026-01-01 06:00:00Z

-- A condition above a union reaches both sides.
select count(*) as n from (select service as s from obs.logs union all select name from obs.services) where s = 'web';
-- n
-- 31

-- A number beyond doubles is compared exactly.
select id from odd where id = 9007199254740993;
-- Id
-- 9007199254740993

-- Both zeros are equal.
select id from odd where x = 0 order by id;
-- Id
-- 1
-- 2

-- NaN is above every number.
select id from odd where x > 1 order by id;
-- Id
-- 3
-- 9007199254740993

-- Text with quotes, percent signs and backslashes.
select id from odd where text = 'it''s' or text like '50\\%%' order by id;
-- Id
-- 3

-- The empty text is not null.
select id from odd where text = '';
-- Id
-- 1

-- A number compared with text that is one.
select count(*) as n from obs.logs where status = '500';
-- n
-- 24

-- Not like.
select count(*) as n from obs.logs where message not like 'GET%';
-- n
-- 76

-- Not like does not find nulls.
select count(*) as n from obs.logs where service not like 'a%';
-- n
-- 60

-- Not a regular expression.
select count(*) as n from obs.logs where message not rlike '^user';
-- n
-- 77

-- True, and not unknown.
select count(*) as n from obs.logs where (service = 'web') is not true;
-- n
-- 66

-- Different, where null is a value.
select count(*) as n from obs.logs where service is distinct from 'web';
-- n
-- 66

-- A text that meets a time is a time, however it is written and wherever it stands.
select count(*) as n, count_if(ts in ('2026-01-01 00:00:00', '2026-01-01T01:00:00Z')) as i, count_if(ts >= '2026-01') as m, count_if('2026-01-02' > ts) as l from obs.logs;
-- n | i | m | l
-- 96 | 2 | 96 | 24

-- A vector that is missing, or of another length, has no distance; nor has one without a direction an angle.
select id, l2_distance(v, array(1, 0, 0)) as d, cosine_distance(v, array(0, 0, 0)) as c, inner_product(v, array(1, 1)) as p from vec.items order by id;
-- id | d | c | p
-- 1 | 0 | ∅ | ∅
-- 2 | 1.41421 | ∅ | ∅
-- 3 | 4.47214 | ∅ | ∅
-- 4 | ∅ | ∅ | ∅
