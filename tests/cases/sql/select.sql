-- A count needs no column.
select count(*) as n from obs.logs;
-- n
-- 96

-- An expression without a name is named by its text.
select count(*), max(status) from obs.logs;
-- count(*) | max(status)
-- 96 | 500

-- Names of tables and columns are found whatever their case; the table's spelling is kept.
select ID, X from ODD where id = 1;
-- Id | x
-- 1 | 0

-- A star gives the table's columns in their order.
select * from obs.services order by tier nulls last;
-- name | team | tier
-- auth | identity | 1
-- web | front | 2
-- mail | front | 3
-- ∅ | nobody | ∅

-- A star of one source of a join gives only its columns.
select s.* from obs.services s join obs.logs l on l.service = s.name where l.ts = '2026-01-01T01:00:00Z';
-- name | team | tier
-- web | front | 2

-- A star without some columns.
select * except (team) from obs.services where name = 'auth';
-- name | tier
-- auth | 1

-- Two columns of one name are told apart.
select a.name, b.name from obs.services a join obs.services b on a.tier = b.tier order by 1;
-- name | name_2
-- auth | auth
-- mail | mail
-- web | web

-- A table may be named with its namespace before a column.
select obs.services.team from obs.services where obs.services.tier = 1;
-- team
-- identity

-- Quoted names are names.
select `name` as `the name` from obs.services where `tier` = 3;
-- the name
-- mail

-- Constants need no table.
select 1 as a, 'x' as b, true as c, null as d, 1.5 as e;
-- a | b | c | d | e
-- 1 | x | true | ∅ | 1.5

-- Values can be a table.
select a + b as s from values (1, 2), (3, 4) as t(a, b) order by s;
-- s
-- 3
-- 7

-- Distinct rows.
select distinct status from obs.logs order by status;
-- status
-- 200
-- 404
-- 500

-- A limit with an order.
select ts, status from obs.logs order by ts desc limit 3;
-- ts | status
-- 2026-01-04 23:00:00Z | 200
-- 2026-01-04 22:00:00Z | 500
-- 2026-01-04 21:00:00Z | 404

-- A limit and an offset.
select ts from obs.logs order by ts limit 2 offset 3;
-- ts
-- 2026-01-01 03:00:00Z
-- 2026-01-01 04:00:00Z

-- A limit without an order gives so many rows, of whichever.
select count(*) as n from (select ts from obs.logs limit 7);
-- n
-- 7

-- A limit after a filter that the scan answers exactly.
select count(*) as n from (select ts from obs.logs where status = 500 limit 10);
-- n
-- 10

-- A limit of nothing.
select ts from obs.logs limit 0;
-- ts

-- Nulls come first in an ascending order, as in Spark.
select distinct service from obs.logs order by service;
-- service
-- ∅
-- auth
-- db
-- web

-- Nulls come last in a descending order, as in Spark.
select name from obs.services order by name desc;
-- name
-- web
-- mail
-- auth
-- ∅

-- An order by what is not selected.
select name from obs.services where tier is not null order by tier desc;
-- name
-- mail
-- web
-- auth

-- An order by position.
select tier, name from obs.services where tier is not null order by 1 desc;
-- tier | name
-- 3 | mail
-- 2 | web
-- 1 | auth

-- A case picks the first branch that is true.
select name, case when tier = 1 then 'high' when tier > 1 then 'low' else 'none' end as level from obs.services order by name;
-- name | level
-- ∅ | none
-- auth | high
-- mail | low
-- web | low

-- A simple case compares.
select case status when 200 then 'ok' when 404 then 'lost' end as s, count(*) as n from obs.logs group by 1 order by 1;
-- s | n
-- ∅ | 24
-- lost | 24
-- ok | 48

-- If is a short case.
select if(tier > 1, 'b', 'a') as x from obs.services where tier is not null order by tier;
-- x
-- a
-- b
-- b

-- A union keeps all rows.
select name from obs.services where tier = 1 union all select name from obs.services where tier <= 2 order by name;
-- name
-- auth
-- auth
-- web

-- A union without all gives distinct rows.
select team from obs.services union select 'front' order by team;
-- team
-- front
-- identity
-- nobody

-- Rows of the one and not of the other.
select name from obs.services except select 'web' order by name;
-- name
-- ∅
-- auth
-- mail

-- Rows of both.
select status from obs.logs intersect select 404;
-- status
-- 404

-- A subquery in from.
select max(n) as most from (select service, count(*) as n from obs.logs group by service);
-- most
-- 30

-- A common table expression, used twice.
with c as (select service, count(*) as n from obs.logs group by service) select a.service from c a join c b on a.n = b.n and a.service = b.service where a.n > 30 order by 1;
-- service

-- A common table expression may use an earlier one.
with a as (select * from obs.logs where status = 500), b as (select service from a where service = 'db') select count(*) as n from b;
-- n
-- 8

-- A common table expression hides a table of its name.
with services as (select 'mine' as name) select name from services;
-- name
-- mine

-- A scalar subquery.
select count(*) as n from obs.logs where latency > (select avg(latency) from obs.logs);
-- n
-- 48

-- A correlated subquery.
select s.name, (select count(*) from obs.logs l where l.service = s.name) as n from obs.services s where s.tier is not null order by s.name;
-- name | n
-- auth | 30
-- mail | 0
-- web | 30

-- Exists asks for a row.
select name from obs.services s where exists (select 1 from obs.logs l where l.service = s.name and l.status = 500) order by name;
-- name
-- auth
-- web

-- Not exists asks for none.
select name from obs.services s where not exists (select 1 from obs.logs l where l.service = s.name) order by name;
-- name
-- ∅
-- mail

-- In a subquery.
select count(*) as n from obs.logs where service in (select name from obs.services where team = 'front');
-- n
-- 30
