create table goods (name text);
