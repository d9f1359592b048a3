#!/bin/sh
# The five-minute tour of docs/tour.md, step by step, in a folder of its own. The test `tour` runs it and checks what it prints.
#
#   sh docs/tour.sh [PORT]      HONEYFLOW names the binary, if it is not on the PATH
set -eu

honeyflow=${HONEYFLOW:-honeyflow}
port=${1:-7171}
folder=$(mktemp -d)
node=
trap 'test -z "$node" || kill "$node" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

say() { printf '\n### %s\n' "$*"; }
hf() { printf '$ honeyflow %s\n' "$*"; "$honeyflow" "$@"; }
sql() { printf '$ sqlite3 clinic.db ".timeout 5000" "%s"\n' "$1"; sqlite3 clinic.db '.timeout 5000' "$1"; }

# Tries a command until its output contains a text; a minute is only there against hanging.
until_says() {
    wanted=$1; shift
    tries=0
    until "$@" 2>&1 | grep -q -e "$wanted"; do
        tries=$((tries + 1))
        test $tries -lt 300 || { echo "waited in vain for '$wanted' in: $*"; cat log; exit 1; }
        sleep 0.2
    done
}

# Waits until the log shows that a node has started that number of times.
until_starts() {
    tries=0
    until test "$(grep -c ' started: ' log)" -ge "$1"; do
        tries=$((tries + 1))
        test $tries -lt 300 || { cat log; exit 1; }
        sleep 0.2
    done
}

start() {
    echo '$ honeyflow start --yes 2>> log &'
    : >> log
    seen=$(grep -c ' started: ' log || true)
    "$honeyflow" start --yes 2>> log &
    node=$!
    until_starts $((seen + 1))
}

stop() {
    echo '$ kill %1'
    kill "$node"
    wait "$node"
    node=
}

say a database
cat > clinic.sql <<'SQL'
create table ward    (code text primary key, name text not null);
create table staff   (id integer primary key, name text not null, boss_id integer references staff(id));
create table patient (ward text references ward(code), bed integer, name text not null, note text,
                      primary key (ward, bed));
create table care    (ward text, bed integer, staff_id integer references staff(id),
                      primary key (ward, bed, staff_id),
                      foreign key (ward, bed) references patient(ward, bed));

insert into ward    values ('N', 'North'), ('S', 'South');
insert into staff   values (1, 'Ada', null), (2, 'Grace', 1), (3, 'Barbara', 1);
insert into patient values ('N', 1, 'Tim', 'broken arm'), ('N', 2, 'Ken', 'fever'), ('S', 1, 'Ida', 'cough');
insert into care    values ('N', 1, 2), ('N', 2, 2), ('N', 2, 3), ('S', 1, 3);
SQL
sqlite3 clinic.db < clinic.sql

say a configuration
hf init sqlite:clinic.db > ddl.sql
sed -i "s/127.0.0.1:7171/127.0.0.1:$port/" honeyflow.toml
sed -n '/^\[entity.patient\]/,/^\[entity.staff\]/p' honeyflow.toml
hf check

say a node
start
until_says 'clinic  0 ' "$honeyflow" status
cat log
hf search patient fever
hf search staff ada

say changes
sql "insert into patient values ('S', 2, 'Eve', 'sleeps badly')"
sql "update staff set name = 'Barbara Liskov' where id = 3"
sql "update patient set bed = 9 where ward = 'N' and bed = 2"
sql "delete from patient where ward = 'S' and bed = 1"
until_says 'clinic  0 ' "$honeyflow" status
hf search patient
hf search staff liskov
hf explain patient 'S|2'
hf verify
hf status

say another configuration
echo '$ sed -i "0,/sql.load/s//sql.laod/" honeyflow.toml'
sed -i '0,/sql.load/s//sql.laod/' honeyflow.toml
until_says 'ignored the changed configuration' cat log
sed -n '/ignored the changed configuration/,$p' log
echo "\$ sed -i 's/\"sql.laod\"/\"sql.load\", tries = 2/' honeyflow.toml"
sed -i 's/"sql.laod"/"sql.load", tries = 2/' honeyflow.toml
until_says 'the configuration has changed' cat log
until_starts 2

say a bad row
sql "update patient set note = cast(x'ff' as text) where ward = 'S' and bed = 2"
until_says 'invalid-utf8' "$honeyflow" parked list
hf parked list
hf explain patient 'S|2'
sql "update patient set note = 'sleeps well' where ward = 'S' and bed = 2"
until_says 'clinic  0 ' "$honeyflow" status
hf parked list
hf verify patient

say other fields
echo "\$ sed -i 's/note = \"text\"/note = { type = \"text\", language = \"en\" }/' honeyflow.toml"
sed -i 's/note = "text"/note = { type = "text", language = "en" }/' honeyflow.toml
until_says 'the next generation is served' cat log
tail -n 2 log
hf search patient note:sleeping

say the end
hf verify
stop
tail -n 1 log
hf source uninstall clinic --yes
