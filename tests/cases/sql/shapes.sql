-- Listed rows have columns of their own names.
select col1, sum(col2) as s from values (1, 10), (1, 20), (2, 5) group by col1;
-- col1 | s
-- 1 | 30
-- 2 | 5

-- Listed rows without parentheses, and a name for their column.
select a + 1 as b from values 1, 2 as t(a);
-- b
-- 2
-- 3

-- Listed rows alone are a query.
values (1, 'x'), (2, 'y');
-- col1 | col2
-- 1 | x
-- 2 | y

-- A range gives the column id.
select id, t.id * 2 as twice from range(1, 4) t;
-- id | twice
-- 1 | 2
-- 2 | 4
-- 3 | 6

-- A type's name casts.
select smallint('2') as a, bigint('7') as b, double('1.5') as c, string(3) as d, tinyint(1) as e, decimal(4.4) as f;
-- a | b | c | d | e | f
-- 2 | 7 | 1.5 | 3 | 1 | 4

-- The least number of a type is one number.
select -128y as a, -9223372036854775808L as b;
-- a | b
-- -128 | -9223372036854775808

-- A shift binds tighter than and.
select 1 & 2 >> 1 as a, (1 & 2) >> 1 as b;
-- a | b
-- 1 | 0

-- An alias of a table renames its columns.
select x.label from obs.services as x(label, team, level) where x.level = 1 order by label;
-- label
-- auth

-- A word in double quotes that names a column is that column.
select count(*) as n from obs.services where "tier" = 1;
-- n
-- 1

-- Any other word in double quotes is text.
select count(*) as n from obs.services where name = "auth";
-- n
-- 1

-- A word in double quotes that names a column elsewhere is text where there is no such column.
select "tier" as t from (select name from obs.services where name = 'auth') s;
-- t
-- tier

-- A star over joined common tables has all their columns.
with c as (select 1 as a, 2 as b) select * from (select * from c join c d on c.a = d.a) s;
-- a | b | a_2 | b_2
-- 1 | 2 | 1 | 2

-- A full join on a name, twice: rows that meet only in the later tables are one.
with a as (select 1 as k, 'a' as x), b as (select 2 as k, 'b' as y), c as (select 2 as k, 'c' as z) select * from a full join b using (k) full join c using (k) order by k;
-- k | x | y | z
-- 1 | a | ∅ | ∅
-- 2 | ∅ | b | c

-- A right join on a name gives the right side's.
with a as (select 1 as k), b as (select 2 as k), c as (select 2 as k, 'c' as z) select k, z from a right join b using (k) join c using (k);
-- k | z
-- 2 | c

-- A table that is joined by a condition keeps all its columns beside a natural join.
with a as (select 1 as k, 'a' as x), b as (select 1 as k, 'b' as y), c as (select 1 as k, 'c' as z) select * from a natural join b join c on a.k = c.k;
-- k | x | y | k_2 | z
-- 1 | a | b | 1 | c

-- A semi join without a condition asks whether there is a row at all.
select name from obs.services left semi join (select 1 as one where false) e;
-- name

-- A lateral subquery sees what stands before it.
select s.id, v.twice from range(1, 3) s, lateral (select s.id * 2 as twice) v order by id;
-- id | twice
-- 1 | 2
-- 2 | 4

-- A list as a table.
select x from explode(array(3, 4)) as t(x) order by x;
-- x
-- 3
-- 4

-- A name for a number that is part of what is grouped by.
select max(col1) as m, 3 as three from values (1), (2), (3), (4) group by col1 % three order by m;
-- m | three
-- 2 | 3
-- 3 | 3
-- 4 | 3
