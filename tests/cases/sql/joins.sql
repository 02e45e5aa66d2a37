-- An inner join leaves out what has no partner.
select s.team, count(*) as n from obs.logs l join obs.services s on l.service = s.name group by s.team order by 1;
-- team | n
-- front | 30
-- identity | 30

-- A left join keeps what has no partner.
select s.name, count(l.ts) as n from obs.services s left join obs.logs l on l.service = s.name group by s.name order by 1;
-- name | n
-- ∅ | 0
-- auth | 30
-- mail | 0
-- web | 30

-- A right join keeps the other side.
select s.name, count(l.ts) as n from obs.logs l right join obs.services s on l.service = s.name where s.tier >= 2 group by s.name order by 1;
-- name | n
-- mail | 0
-- web | 30

-- A full join keeps both.
select a.name as a, b.name as b from (select name from obs.services where tier <= 2) a full join (select name from obs.services where tier >= 2) b on a.name = b.name order by 1, 2;
-- a | b
-- ∅ | mail
-- auth | ∅
-- web | web

-- A condition in a left join's on is not one in where.
select s.name, count(l.ts) as n from obs.services s left join obs.logs l on l.service = s.name and l.status = 500 where s.tier = 1 group by s.name;
-- name | n
-- auth | 8

-- Where over the optional side drops what has no partner.
select s.name, count(*) as n from obs.services s left join obs.logs l on l.service = s.name where l.status = 500 group by s.name order by 1;
-- name | n
-- auth | 8
-- web | 8

-- What has no partner, by is null; the condition must not reach the scan.
select s.name from obs.services s left join obs.logs l on l.service = s.name where l.ts is null order by 1;
-- name
-- ∅
-- mail

-- A cross join.
select count(*) as n from obs.services a cross join obs.services b;
-- n
-- 16

-- A join by a comma and where.
select count(*) as n from obs.logs l, obs.services s where l.service = s.name and s.tier = 2 and l.status = 404;
-- n
-- 8

-- Using names the column once.
select name, a.tier as t from obs.services a join (select name from obs.services where tier > 1) b using (name) order by name;
-- name | t
-- mail | 3
-- web | 2

-- A semi join keeps the left side's rows once.
select name from obs.services s left semi join obs.logs l on l.service = s.name order by name;
-- name
-- auth
-- web

-- An anti join keeps those without a partner.
select name from obs.services s left anti join obs.logs l on l.service = s.name and l.status = 200 order by name;
-- name
-- ∅
-- mail

-- A join on an inequality.
select count(*) as n from obs.services a join obs.services b on a.tier < b.tier;
-- n
-- 3

-- A table joined with itself is read twice at one snapshot.
select count(*) as n from obs.logs a join obs.logs b on a.ts = b.ts;
-- n
-- 96

-- A join of three.
select count(*) as n from obs.logs a join obs.services s on a.service = s.name join obs.services t on s.team = t.team;
-- n
-- 90

-- A lateral view opens lists.
select n, x from (select 1 as n, array(10, 20) as xs) lateral view explode(xs) t as x order by x;
-- n | x
-- 1 | 10
-- 1 | 20
