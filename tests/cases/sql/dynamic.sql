-- A path by brackets with the whole path; both spellings of the keys are found.
select count(*) as n from obs.logs where attributes["http.status"] = 500;
-- n
-- 20

-- A path after a colon.
select count(*) as n from obs.logs where attributes:http.method = 'PUT';
-- n
-- 22

-- A path step by step.
select count(*) as n from obs.logs where attributes['http']['method'] = 'PUT';
-- n
-- 22

-- A path with dots.
select count(*) as n from obs.logs l where l.attributes.http.method = 'PUT';
-- n
-- 22

-- A number is compared as a number; text is not one.
select count(*) as n from obs.logs where attributes:http.status > 290;
-- n
-- 24

-- Text is compared as text; a number is not one.
select count(*) as n from obs.logs where attributes:http.status = 'unknown';
-- n
-- 9

-- Nothing at a path is null.
select count(*) as n from obs.logs where attributes:note is not null;
-- n
-- 9

-- A list's item.
select count(*) as n from obs.logs where attributes:tags[1] = 'b';
-- n
-- 20

-- True and false.
select count(*) as n from obs.logs where attributes:ok = true;
-- n
-- 10

-- A cast converts what it can.
select sum(attributes:http.status::bigint) as s from obs.logs where attributes:http.method = 'GET' and ts < '2026-01-01T09:00:00Z';
-- s
-- 609

-- A cast to text gives numbers as text.
select distinct attributes:http.status::string as s from obs.logs where ts < '2026-01-01T03:00:00Z' order by s;
-- s
-- 200
-- 202
-- 500

-- Dynamic values are grouped by their text.
select attributes:http.method as m, count(*) as n from obs.logs group by 1 order by 1;
-- m | n
-- ∅ | 29
-- GET | 22
-- POST | 23
-- PUT | 22

-- Sums take numbers.
select sum(attributes:ratio) as s, avg(attributes:ratio) as a from obs.logs;
-- s | a
-- 4.5 | 0.5

-- Distinct dynamic values.
select count(distinct attributes:http.method) as n from obs.logs;
-- n
-- 3

-- Text functions take text.
select distinct lower(attributes:http.method) as m from obs.logs where attributes:http.method like 'P%' order by m;
-- m
-- post
-- put

-- has looks into text at a path.
select count(*) as n from obs.logs where has(attributes:note, 'FREE');
-- n
-- 9

-- A choice with plain values is plain.
select coalesce(attributes:http.method, 'none') as m, count(*) as n from obs.logs group by 1 order by 1;
-- m | n
-- GET | 22
-- POST | 23
-- PUT | 22
-- none | 29

-- One of several at a path.
select count(*) as n from obs.logs where attributes:http.method in ('GET', 'PUT');
-- n
-- 44

-- A range at a path.
select count(*) as n from obs.logs where attributes:http.status between 210 and 220;
-- n
-- 9

-- A whole value is its JSON text.
select attributes from obs.logs where ts = '2026-01-01T07:00:00Z';
-- attributes
-- {"http":{"status":"unknown"},"note":"free text","ratio":0.5}

-- What is at a path is its JSON text.
select attributes:tags as tags from obs.logs where ts = '2026-01-01T01:00:00Z';
-- tags
-- ["a","b"]

-- The least of dynamic values: they have no order until a type is named.
select min(attributes:http.status) as m from obs.logs;
-- error: 'http.status' is dynamic and has no order: say as what, such as http.status::double or http.status::string

-- The least as numbers.
select min(attributes:http.status::double) as m from obs.logs;
-- m
-- 200

-- Dynamic values through a subquery.
select count(*) as n from (select attributes:http.method as m from obs.logs) where m = 'POST';
-- n
-- 23
