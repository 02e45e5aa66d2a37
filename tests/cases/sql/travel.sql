-- A table as it was at a snapshot.
select count(*) as n from obs.logs version as of 3;
-- n
-- 24

-- The same in the standard's words.
select count(*) as n from obs.logs for version as of 3;
-- n
-- 24

-- Two states of one table in one query.
select (select count(*) from obs.logs) - (select count(*) from obs.logs version as of 3) as more;
-- more
-- 72

-- A snapshot that is not there.
select count(*) as n from obs.logs version as of 99;
-- error: obs.logs has no snapshot 99, or no longer

-- A time before the table.
select count(*) as n from obs.logs timestamp as of '2020-01-01';
-- error: obs.logs has no snapshot at 2020-01-01, or no longer

-- The same in the standard's words.
select count(*) as n from obs.logs for system_time as of '2020-01-01';
-- error: obs.logs has no snapshot at 2020-01-01, or no longer

-- Another product's way to write it, which would be read as an alias.
select count(*) as n from obs.logs@v2;
-- error: '@' after obs.logs means nothing here: write version as of 3

-- A time that is none.
select count(*) as n from obs.logs timestamp as of 'garbage';
-- error: obs.logs cannot be read as it was: 'garbage' is not a time such as 2026-01-31T12:00:00Z
