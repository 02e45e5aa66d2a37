-- Text by a pattern, as Java's formatter writes it.
select format_string('%s has %5d of %.2f%%, %1$s', 'a', 42, 1.5d) as a, printf('%x %05d %,d', 255, 7, 1234567) as b;
-- a | b
-- a has    42 of 1.50%, a | ff 00007 1,234,567

-- A part from the left or right of no length is empty, of an unknown one unknown.
select concat('<', left('abcd', -3), '>') as a, left('abcd', 2) as b, length(right('abcd', 0)) as c, right('abcd', null) as d;
-- a | b | c | d
-- <> | ab | 0 | ∅

-- What cannot be cast: try_cast wants the whole text, cast cuts off.
select try_cast('1.5' as int) as a, cast('1.5' as int) as b, cast('-4.56' as bigint) as c, try_cast('12' as int) as d, cast('1e3' as int) as e;
-- a | b | c | d | e
-- ∅ | 1 | -4 | 12 | ∅

-- Beyond its range a real is the nearest end, and a whole number begins again.
select cast(1e20 as int) as a, cast(-1e30 as bigint) as b, cast(4294967297L as int) as c, cast(300 as tinyint) as d;
-- a | b | c | d
-- 2147483647 | -9223372036854775808 | 1 | 44

-- Texts that are true or false.
select cast(' yes ' as boolean) as a, cast('f' as boolean) as b, cast('2' as boolean) as c;
-- a | b | c
-- true | false | ∅

-- A real as text.
select string(12345678.9d) as a, string(0.0001d) as b, string(1e20) as c, string(1.5d) as d, concat('x', 1e-7) as e, string(-20000000d) as f;
-- a | b | c | d | e | f
-- 1.23456789E7 | 1.0E-4 | 1.0E20 | 1.5 | x1.0E-7 | -2.0E7

-- Sums and quotients that are null instead of an error.
select try_add(2147483647, 1) as a, try_subtract(5, 3) as b, try_multiply(9223372036854775807L, 2) as c, try_divide(1, 0) as d, try_mod(7, 0) as e, try_element_at(array(1, 2), 5) as f;
-- a | b | c | d | e | f
-- ∅ | 2 | ∅ | ∅ | ∅ | ∅

-- Rounding to the even neighbour, buckets, other bases.
select bround(2.5) as a, bround(3.5) as b, width_bucket(5.35, 0.024, 10.06, 5) as c, conv('ff', 16, 10) as d, conv('-10', 10, 16) as e, rint(2.5) as f;
-- a | b | c | d | e | f
-- 2 | 4 | 3 | 255 | FFFFFFFFFFFFFFF6 | 2

-- Lists by functions; places are counted from zero.
select transform(array(10, 20), (x, i) -> x + i) as a, filter(array(1, 2, 3), (x, i) -> i > 0) as b, exists(array(1, 2), x -> x > 1) as c, forall(array(1, 2), x -> x > 1) as d, aggregate(array(1, 2, 3), 0, (s, x) -> s + x, s -> s * 10) as e;
-- a | b | c | d | e
-- [10, 21] | [2, 3] | true | false | 60

-- Pairs of lists, and what is in either.
select zip_with(array(1, 2), array(10, 20), (x, y) -> x + y) as a, array_union(array(1, 2), array(2, 3)) as b, arrays_overlap(array(1), array(2)) as c, array_repeat('x', 2) as d, get(array(1, 2), 5) as e, array_insert(array(1, 3), 2, 2) as f;
-- a | b | c | d | e | f
-- [11, 22] | [1, 2, 3] | false | [x, x] | ∅ | [1, 2, 3]

-- Sorting lists: nulls come first, or where a function says.
select sort_array(array(2, null, 1)) as a, sort_array(array(2, null, 1), false) as b, array_sort(array(2, null, 1)) as c;
-- a | b | c
-- [∅, 1, 2] | [2, 1, ∅] | [1, 2, ∅]

-- Maps by functions.
select map_filter(map('a', 1, 'b', 2), (k, v) -> v > 1)['b'] as a, transform_values(map('a', 1), (k, v) -> v * 10)['a'] as b, map_contains_key(map('a', 1), 'b') as c;
-- a | b | c
-- 2 | 10 | false

-- Parts of text.
select substring_index('a.b.c', '.', 2) as a, substring_index('a.b.c', '.', -1) as b, split_part('a-b', '-', 2) as c, split('a1b2c', '[0-9]', 2) as d, elt(2, 'x', 'y') as e, find_in_set('b', 'a,b') as f, btrim('xax', 'x') as g;
-- a | b | c | d | e | f | g
-- a.b | c | b | [a, b2c] | y | 2 | a

-- Padding, also with nothing.
select lpad('7', 3, '0') as a, rpad('ab', 1, 'x') as b, lpad('ab', 5, '') as c, hex(lpad(unhex('aa'), 3)) as d;
-- a | b | c | d
-- 007 | a | ab | 0000AA

-- Numbers by a pattern of digits, both ways.
select to_char(1234.5, '9,999.99') as a, to_number('$1,234.50', '$9,999.99') as b, try_to_number('x', '999') as c;
-- a | b | c
-- 1,234.50 | 1234.5 | ∅

-- Times by a pattern.
select date_format(timestamp '2026-05-06 07:08:09', 'yyyy-MM-dd HH:mm') as a, date_format(timestamp '2026-05-06 07:08:09', 'QQQ yy, EEEE') as b;
-- a | b
-- 2026-05-06 07:08 | Q2 26, Wednesday

-- Parts of times, by all their names; seconds have a fraction.
select extract(yr from timestamp '2026-05-06 07:08:09.25') as a, date_part('dow', timestamp '2026-05-06 07:08:09') as b, extract(second from timestamp '2026-05-06 07:08:09.25') as c, extract(week from '2026-05-06') as d;
-- a | b | c | d
-- 2026 | 4 | 9.25 | 19

-- Between times: whole units, days by the calendar, months with a part.
select timestampdiff(HOUR, timestamp '2026-01-01 01:30:00', timestamp '2026-01-01 12:00:00') as a, datediff(timestamp '2026-01-02 01:00:00', timestamp '2026-01-01 23:00:00') as b, datediff(DAY, timestamp '2026-01-01 23:00:00', timestamp '2026-01-02 01:00:00') as c, months_between('2026-03-31', '2026-01-15') as d;
-- a | b | c | d
-- 10 | 1 | 0 | 2.51613

-- Intervals of two units.
select timestamp '2026-01-01 00:00:00' + interval '1 02:03:04' day to second as a, date '2026-01-31' + interval '1-1' year to month as b, timestamp '2026-01-01 00:00:00' - interval -'90' minute as c;
-- a | b | c
-- 2026-01-02 02:03:04Z | 2027-02-28 | 2026-01-01 01:30:00Z

-- A date that cannot be.
select make_date(2026, 13, 1) as a, make_date(2026, 2, 3) as b, next_day('2026-05-06', 'MO') as c, weekday('2026-05-06') as d;
-- a | b | c | d
-- ∅ | 2026-02-03 | 2026-05-11 | 2

-- JSON of a type.
select from_json('{"a": 1, "b": "x"}', 'a int, b string').b as a, from_json('[1, 2]', 'array<int>')[1] as b, json_array_length('[1, 2') as c, json_array_length('[1, 2]') as d;
-- a | b | c | d
-- x | 2 | ∅ | 2

-- Parts of an address.
select parse_url('http://u@h:80/p/q?a=1&b=2#r', 'HOST') as a, parse_url('http://u@h:80/p/q?a=1&b=2#r', 'QUERY', 'b') as b, try_url_decode('a%20b') as c, try_url_decode('a%2') as d;
-- a | b | c | d
-- h | 2 | a b | ∅

-- Texts meet numbers: they are taken as numbers, or as null.
select '5' * 2 as a, 'x' + 1 as b, count_if(message > 5) as c, case when true then 'a' else 1 end as d from obs.logs where ts = '2026-01-01T03:00:00Z' group by 1, 2, 4;
-- a | b | c | d
-- 10 | ∅ | 0 | a

-- Dynamic values in functions: as text, and as numbers.
select left(attributes:http.method, 2) as a, replace(attributes:http.method, 'P', 'p') as b, pow(attributes:http.status, 1) as c from obs.logs where ts = '2026-01-01T02:00:00Z';
-- a | b | c
-- PO | pOST | 202

-- The largest of several by another.
select max_by(x, y, 2) as a, min_by(x, y) as b from values ('a', 1), ('b', 3), ('c', 2) as t(x, y);
-- a | b
-- [b, c] | a

-- Cut off at a place.
select truncate(-25, -1) as a, truncate(1.239, 2) as b;
-- a | b
-- -20 | 1.23

-- What lines of a log do not have in common: the words that hold a digit.
select words[0] as first, words[1]::int as second from (
  select regexp_extract_all(m, '[A-Za-z]*[0-9][0-9A-Za-z]*', 0) as words
  from values ('took 5 of 70 ms'), ('user9: no'), ('none') as v(m)
) order by 1 nulls last;
-- first | second
-- 5 | 70
-- user9 | ∅
-- ∅ | ∅

-- Lines of a log by what they have in common: each word that holds a digit is a placeholder.
select message_template(m) as t, count(*) as n, min(template_id(m)) = max(template_id(m)) as one
from values ('took 5 ms'), ('took 77 ms'), ('user9: no') as v(m) group by 1 order by 1;
-- t | n | one
-- <*>: no | 1 | true
-- took <*> ms | 2 | true
