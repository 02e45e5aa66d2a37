with revenue as (
  select l_suppkey as supplier_no, round(sum(l_extendedprice * (1 - l_discount)), 2) as total_revenue
  from tpch.lineitem
  where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval 3 month
  group by l_suppkey)
select s_suppkey, s_name, s_address, s_phone, total_revenue
from tpch.supplier, revenue
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
order by s_suppkey
