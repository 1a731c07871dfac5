"""What an installation of triggers refuses, what it parses without a search_path, and what it does not stop."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import psycopg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations

import ticker
from tests.cli.answers import answer
from tests.factories import engine_on
from tests.followed import ACTIVE, add, put, states
from tests.running import until
from tests.sentences import sentence
from ticker import owners
from ticker.db.connections import connect
from ticker.errors import BadInput
from ticker.tasks.owner_types import function_name, guard_name

pytestmark = pytest.mark.slow

LIKE_CITEXT = """
CREATE TYPE public.citext;
CREATE FUNCTION public.citextin(cstring) RETURNS public.citext LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION public.citextout(public.citext) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE public.citext (INPUT = public.citextin, OUTPUT = public.citextout, LIKE = text, COLLATABLE = true);
CREATE CAST (public.citext AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (text AS public.citext) WITHOUT FUNCTION AS ASSIGNMENT;
CREATE FUNCTION public.citext_eq(a public.citext, b public.citext) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
    AS 'BEGIN RETURN lower(a::text) = lower(b::text); END';
CREATE FUNCTION public.citext_lt(a public.citext, b public.citext) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN lower(a::text) < lower(b::text);
CREATE FUNCTION public.citext_cmp(a public.citext, b public.citext) RETURNS int LANGUAGE sql IMMUTABLE
    RETURN bttextcmp(lower(a::text), lower(b::text));
CREATE OPERATOR public.= (LEFTARG = public.citext, RIGHTARG = public.citext, FUNCTION = public.citext_eq, MERGES);
CREATE OPERATOR public.< (LEFTARG = public.citext, RIGHTARG = public.citext, FUNCTION = public.citext_lt);
CREATE OPERATOR CLASS public.citext_ops DEFAULT FOR TYPE public.citext USING btree AS
    OPERATOR 1 public.<, OPERATOR 3 public.=, FUNCTION 1 public.citext_cmp(public.citext, public.citext);
"""
"""The parts of citext that matter here, for servers without its library."""


@pytest.fixture
def citext(db):
    there = db.execute("SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'").fetchone()
    db.execute("CREATE EXTENSION citext SCHEMA public" if there == (1,) else LIKE_CITEXT)


def refused(db, table="channels", **options):
    """Returns the sentence with which an installation is refused, and checks that it has written nothing."""
    with pytest.raises(psycopg.DatabaseError) as caught:
        put(db, owners.triggers(table, **options))
    assert caught.value.sqlstate == "TK001"
    left = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'ticker'::regnamespace AND proname LIKE 'owner\\_%'"
    assert db.execute(left).fetchone() == (0,)
    return str(caught.value).splitlines()[0]


# ---------------------------------------------------------------------------------- parsed without a search_path


def test_a_condition_that_would_silently_mean_something_else_is_refused_with_the_spelling_that_does_not(db, citext):
    db.execute(
        "CREATE TABLE channels (id int PRIMARY KEY, status public.citext); INSERT INTO channels VALUES (1, 'ON')"
    )
    spelling = "(status OPERATOR(public.=) 'on'::public.citext)"
    assert refused(db, active_when="status = 'on'") == sentence(
        "errors.condition_needs_a_path", why="means ((status)::text = 'on'::text)", spelling=spelling
    )
    put(db, owners.triggers("channels", active_when=spelling))
    assert add(db, "channels", "1") == [(True,)]
    db.execute("UPDATE channels SET status = 'oFF'")
    assert states(db, "channels") == {"1": False}
    db.execute("UPDATE channels SET status = 'oN'")
    assert states(db, "channels") == {"1": True}


def test_a_condition_that_cannot_be_read_without_the_path_is_refused_with_the_spelling_that_can(db):
    db.execute(
        "CREATE FUNCTION public.reaches(a text, b text) RETURNS boolean LANGUAGE sql RETURN a LIKE b || '%';"
        "CREATE OPERATOR public.<@ (LEFTARG = text, RIGHTARG = text, FUNCTION = public.reaches);"  # as ltree's
        "CREATE TABLE channels (id int PRIMARY KEY, path text)"
    )
    spelling = "(path OPERATOR(public.<@) 'a'::text)"
    assert refused(db, active_when="path <@ 'a'") == sentence(
        "errors.condition_needs_a_path", why="fails: operator is not unique: text <@ unknown", spelling=spelling
    )
    put(db, owners.triggers("channels", active_when=spelling))


@pytest.mark.parametrize("condition", ["path <@ 'a'", "attributes -> 'x' = 'y'", "status = 'on'"])
def test_real_extensions_are_refused_with_a_spelling_that_works(db, condition):
    wanted = {"citext", "hstore", "ltree"}
    there = {name for (name,) in db.execute("SELECT name FROM pg_available_extensions")} & wanted
    if there < wanted:
        pytest.skip("needs PostgreSQL's contrib modules: DATABASE_URL of a server that has them")
    for name in wanted:
        db.execute(f"CREATE EXTENSION {name} SCHEMA public")
    db.execute(
        "CREATE TABLE channels (id int PRIMARY KEY, path public.ltree, attributes public.hstore, status public.citext);"
        " INSERT INTO channels VALUES (1, 'a.b', 'x=>y', 'ON'), (2, 'b', 'x=>z', 'off')"
    )
    said = refused(db, active_when=condition)
    spelling = said.partition('active_when="')[2].removesuffix('"')
    put(db, owners.triggers("channels", active_when=spelling))
    assert [add(db, "channels", id_) for id_ in "12"] == [[(True,)], [(False,)]]


def test_conditions_of_other_types_and_functions_mean_the_same_and_are_followed(db):
    db.execute(
        "CREATE TYPE public.status AS ENUM ('on', 'off'); CREATE DOMAIN public.word AS text CHECK (value <> '');"
        "CREATE FUNCTION public.is_on(s public.status) RETURNS boolean LANGUAGE sql RETURN s = 'on';"
        "CREATE FUNCTION public.is_long(w text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN length(w) > 2; END';"
        "CREATE TABLE channels (id public.word PRIMARY KEY, status public.status, w public.word);"
        "INSERT INTO channels VALUES ('a', 'on', 'abc'), ('b', 'off', 'abc'), ('c', 'on', 'ab')"
    )
    put(
        db,
        owners.triggers(
            "channels", active_when="status = 'on' AND public.is_on(status) AND public.is_long(w) AND w <> 'x'"
        ),
    )
    assert [add(db, "channels", id_) for id_ in "abcd"] == [[(True,)], [(False,)], [(False,)], []]
    db.execute("UPDATE channels SET status = 'on', w = 'abcd'; DELETE FROM channels WHERE id = 'a'")
    assert states(db, "channels") == {"b": True, "c": True}


def test_a_key_is_compared_as_its_index_does_and_found_by_it(db, citext):
    db.execute("CREATE TABLE channels (id public.citext PRIMARY KEY); INSERT INTO channels VALUES ('Ada'), ('Bob')")
    put(db, owners.triggers("channels"))
    assert (add(db, "channels", "Ada"), add(db, "channels", "ada")) == ([(True,)], [])  # an id is exact
    db.execute("INSERT INTO channels SELECT 'c' || g FROM generate_series(1, 2000) g; ANALYZE channels")
    with db.transaction():
        db.execute("SET LOCAL enable_seqscan = off; SET LOCAL search_path = pg_catalog, pg_temp")
        [(guard,)] = db.execute("SELECT prosrc FROM pg_proc WHERE proname LIKE 'owner\\_guard\\_%'").fetchall()
        query = guard[guard.index("SELECT v.active") : guard.index(" FOR ")].replace(" INTO found", "")
        [*plan] = db.execute("EXPLAIN " + query.replace("(owner)", "('Bob')").replace("= owner", "= 'Bob'"))
    assert "Index Cond" in str(plan) and "channels_pkey" in str(plan)
    db.execute("DELETE FROM channels WHERE id = 'ADA'::public.citext")
    assert states(db, "channels") == {}


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("id varchar PRIMARY KEY, status varchar", {}),
        ("id int PRIMARY KEY, status varchar", {"active_when": "status OPERATOR(pg_catalog.=) 'on'"}),
        ("room varchar, id varchar, PRIMARY KEY (room, id)", {"key": ("room", "id")}),
    ],
)
def test_what_others_plant_in_a_schema_of_the_path_is_never_called(db, database_url, columns, options):
    db.execute(
        f"CREATE TABLE channels ({columns}); GRANT USAGE, CREATE ON SCHEMA public TO pg_monitor;"
        " CREATE TABLE public.loot (who text); GRANT ALL ON public.loot, channels TO pg_monitor; GRANT pg_monitor TO CURRENT_USER"
    )
    db.execute("SET ROLE pg_monitor")
    for type_ in ("varchar", "text"):
        for name, sign in (("same", "="), ("other", "<>")):
            db.execute(
                f"CREATE FUNCTION public.{name}(a {type_}, b {type_}) RETURNS boolean LANGUAGE plpgsql AS"
                " $$BEGIN INSERT INTO public.loot VALUES (current_user); RETURN a::bytea = b::bytea; END$$;"
                f" CREATE OPERATOR public.{sign} (LEFTARG = {type_}, RIGHTARG = {type_}, FUNCTION = public.{name})"
            )
    db.execute("RESET ROLE; SET search_path = public, pg_catalog")
    put(db, owners.triggers("channels", **options))
    values = ("'1', '2'", "('1', 'on')") if "room" in columns else ("'1', 'on'", "'1'")
    db.execute(f"INSERT INTO channels VALUES ({values[0]}); SET search_path = pg_catalog")
    owner = '["1", "2"]' if "room" in columns else "1"
    assert add(db, "channels", owner) == [(True,)]
    column = "id" if "status" not in columns else "status"
    db.execute(f"UPDATE public.channels SET {column} = 'x'; DELETE FROM public.channels")
    assert db.execute("SELECT * FROM public.loot").fetchall() == []


def test_a_planted_function_makes_a_condition_ambiguous_and_is_named(db):
    db.execute(
        "CREATE TABLE channels (id int PRIMARY KEY, status varchar);"
        "CREATE FUNCTION public.lower(varchar) RETURNS text LANGUAGE sql RETURN 'on'"
    )
    said = refused(db, active_when="lower(status) = 'on'")
    assert "means (lower((status)::text) = 'on'::text)" in said and "public.lower(status)" in said


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("condition", "error"), [("true", None), ("lower(", psycopg.errors.SyntaxError)])
def test_the_callers_settings_are_as_before(database_url, is_open, condition, error):
    show = "SELECT current_setting('search_path'), current_setting('lock_timeout'), current_setting('row_security')"
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute(
            "CREATE TABLE channels (id int PRIMARY KEY); SET search_path = public, pg_catalog; SET lock_timeout = '7s'"
        )
        before = db.execute(show).fetchone()
        with db.transaction() if is_open else nullcontext():
            with pytest.raises(error) if error else nullcontext(), db.transaction() if is_open else nullcontext():
                put(db, owners.triggers("channels", active_when=condition))
            assert db.execute(show).fetchone() == before
        assert db.execute(show).fetchone() == before


@pytest.mark.usefixtures("environ")
def test_triggers_that_use_what_another_role_has_made_are_named(db):
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, status varchar)")
    db.execute("CREATE FUNCTION public.is_on(varchar) RETURNS boolean LANGUAGE sql RETURN true")
    put(db, owners.triggers("channels", active_when="public.is_on(status)"))
    assert answer("db", "upgrade", "--check")["problems"] == []
    db.execute("ALTER FUNCTION public.is_on(varchar) OWNER TO pg_monitor")
    remedy = 'owners.install(op, "channels")'
    planted = sentence("doctor.planted", table="channels", objects="public.is_on(character varying)", remedy=remedy)
    assert answer("db", "upgrade", "--check", code=1)["problems"] == [planted]


@pytest.mark.usefixtures("environ")
def test_types_of_the_columns_and_triggers_of_the_application_are_its_own_matter(db):
    db.execute(
        "CREATE TYPE public.status AS ENUM ('on', 'off'); ALTER TYPE public.status OWNER TO pg_monitor;"
        "CREATE TABLE channels (id int PRIMARY KEY, status public.status);"
        "CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "ALTER FUNCTION public.audit() OWNER TO pg_monitor;"
        "CREATE TRIGGER audit AFTER UPDATE ON channels FOR EACH ROW EXECUTE FUNCTION public.audit()"
    )
    put(db, owners.triggers("channels", active_when="status = 'on'"))
    assert answer("db", "upgrade", "--check")["problems"] == []


def test_functions_of_another_role_are_not_taken_over(db):
    db.execute("CREATE TABLE channels (id int PRIMARY KEY)")
    name = function_name("key", "channels")
    db.execute(f"CREATE FUNCTION ticker.{name}(owner text, OUT ticker_key_0 int) LANGUAGE plpgsql AS 'BEGIN END'")
    db.execute(f"ALTER FUNCTION ticker.{name}(text) OWNER TO pg_monitor")
    with pytest.raises(psycopg.DatabaseError) as caught:
        put(db, owners.triggers("channels"))
    assert sentence("errors.functions_of_another_role", type="channels", role="pg_monitor").begins(str(caught.value))
    put(db, owners.drop_triggers("channels"))
    put(db, owners.triggers("channels"))


@pytest.mark.parametrize("planted", ["guard(int)", "guard(text, int DEFAULT 1)"])
def test_only_a_guard_with_its_own_owners_rights_is_called(db, planted):
    """Neither is an overload of its name, which might run as the owner of our tables."""
    name = guard_name("channels")
    db.execute(
        f"CREATE FUNCTION ticker.{planted.replace('guard', name)} RETURNS boolean LANGUAGE sql SECURITY DEFINER RETURN true;"
        f"CREATE FUNCTION ticker.{name}(text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''called''; END'"
    )
    assert add(db, "channels", "1") == [(True,)]
    assert ticker.register(
        db, "poll", every="1m", owner="channel:1"
    ).warnings  # and nothing fails that lists the guards


def test_the_view_of_the_rows_changes_nothing(channels, db):
    for statement in (
        "DELETE FROM ticker.owner_rows_mail_channels",
        "UPDATE ticker.owner_rows_mail_channels SET ticker_key_0 = 9",
    ):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            db.execute(statement)


def test_a_column_with_the_name_of_our_alias_is_followed(db):
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, o int); INSERT INTO channels VALUES (1, 1)")
    put(db, owners.triggers("channels", active_when="o = 1"))
    assert add(db, "channels", "1") == [(True,)]
    db.execute("UPDATE channels SET o = 2")
    assert states(db, "channels") == {"1": False}


# ----------------------------------------------------------------------------------------------- refused tables


def test_one_type_is_one_table(db):
    db.execute(
        "CREATE TABLE channels (id int PRIMARY KEY); CREATE SCHEMA b; CREATE TABLE b.channels (id int PRIMARY KEY)"
    )
    put(db, owners.triggers("channels"))
    with pytest.raises(psycopg.DatabaseError) as caught:
        put(db, owners.triggers("channels", table_schema="b"))
    assert sentence("errors.type_of_another_table", type="channels", table="public.channels").begins(str(caught.value))
    put(db, owners.triggers("b.channels"))
    db.execute("INSERT INTO channels VALUES (1); INSERT INTO b.channels VALUES (1)")
    assert (add(db, "channels", "1"), add(db, "b.channels", "1")) == ([(True,)], [(True,)])
    db.execute("DELETE FROM channels")
    assert (states(db, "channels"), states(db, "b.channels")) == ({}, {"1": True})


def test_a_refusal_is_one_sentence_without_the_statement_in_a_migration_too(db, database_url):
    db.execute("CREATE TABLE channels (id int, closed boolean) PARTITION BY LIST (closed)")
    refusal = sentence("errors.partitioned", table="public.channels", columns="closed")
    with engine_on(database_url).begin() as connection, pytest.raises(BadInput) as caught:
        owners.install(Operations(MigrationContext.configure(connection)), "channels", key=("id", "closed"))
    assert str(caught.value) == f"table: {refusal}"


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("(id int, closed boolean, PRIMARY KEY (id, closed)) PARTITION BY LIST (closed)", "closed"),
        ("(id int, closed int) PARTITION BY RANGE (abs(closed))", "closed"),
        ("(id int, b int, closed boolean) PARTITION BY LIST (b);"  # noqa: ISC004
         " CREATE TABLE channels_1 PARTITION OF channels FOR VALUES IN (1) PARTITION BY LIST (closed)", "closed"),
    ],
)  # fmt: skip
def test_a_part_of_a_key_by_which_a_table_is_partitioned_is_refused(db, columns, named):
    db.execute(f"CREATE TABLE channels {columns}")
    assert refused(db, key=("id", "closed")) == sentence("errors.partitioned", table="public.channels", columns=named)


TWO = """
CREATE TABLE channels (id int, b int, status text DEFAULT 'open', enabled boolean DEFAULT true) PARTITION BY LIST (b);
CREATE TABLE channels_1 (spare text, status text DEFAULT 'open', enabled boolean DEFAULT true, b int NOT NULL, id int NOT NULL);
ALTER TABLE channels_1 DROP COLUMN spare; -- its columns are in another order
ALTER TABLE channels ATTACH PARTITION channels_1 FOR VALUES IN (1);
CREATE TABLE channels_2 PARTITION OF channels FOR VALUES IN (2) PARTITION BY LIST (status);
CREATE TABLE channels_2_open PARTITION OF channels_2 FOR VALUES IN ('open'); CREATE TABLE channels_2_rest PARTITION OF channels_2 DEFAULT;
INSERT INTO channels VALUES (1, 1), (2, 1), (3, 2)"""


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE channels SET enabled = false WHERE id <> 2",
        "UPDATE channels SET b = 3 - b, enabled = false WHERE id <> 2",
        "UPDATE channels SET b = 2, status = 'closed' WHERE id <> 2",
        "MERGE INTO channels c USING (VALUES (1), (3)) s (id) ON c.id = s.id WHEN MATCHED THEN UPDATE SET b = 3 - b, enabled = false",
    ],
)
def test_the_tasks_of_a_row_follow_it_to_another_partition(db, change):
    db.execute(TWO)
    put(db, owners.triggers("channels", key="id", active_when="enabled AND status = 'open'"))
    assert [add(db, "channels", id_) for id_ in "1234"] == [[(True,)], [(True,)], [(True,)], []]
    db.execute(change)
    assert states(db, "channels") == {"1": False, "2": True, "3": False}
    db.execute("UPDATE channels SET b = 1, enabled = true, status = 'open'; DELETE FROM channels WHERE id = 2")
    assert states(db, "channels") == {"1": True, "3": True}


def test_the_key_of_a_row_in_a_partitioned_table_cannot_change(db):
    db.execute(
        "CREATE TABLE channels (id int PRIMARY KEY, enabled boolean DEFAULT true) PARTITION BY HASH (id);"
        " CREATE TABLE channels_0 PARTITION OF channels FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        " CREATE TABLE channels_1 PARTITION OF channels FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        " INSERT INTO channels SELECT generate_series(1, 9)"
    )
    put(db, owners.triggers("channels", active_when="enabled"))
    add(db, "channels", "1")
    with pytest.raises(psycopg.errors.RaiseException, match="cannot change"):
        db.execute("UPDATE channels SET id = id + 100")
    db.execute("UPDATE channels SET enabled = false, id = id")
    assert states(db, "channels") == {"1": False}


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize("change", ["DETACH PARTITION channels_1", "TRUNCATE channels_1", "DROP TABLE channels_1"])
def test_check_names_what_a_change_of_partitions_has_left(db, change):
    db.execute(
        "CREATE TABLE channels (id int, b int, closed boolean) PARTITION BY LIST (b);"
        " CREATE TABLE channels_1 PARTITION OF channels FOR VALUES IN (1); INSERT INTO channels VALUES (1, 1, false)"
    )
    put(db, owners.triggers("channels", active_when="NOT closed"))
    add(db, "channels", "1")
    assert answer("db", "upgrade", "--check")["problems"] == []
    db.execute(f"ALTER TABLE channels {change}" if change.startswith("DETACH") else change)
    remedy = "ticker owners --orphans --remove"
    assert answer("db", "upgrade", "--check", code=1)["problems"] == [
        sentence("doctor.outlived", table="channels", number=1, remedy=remedy)
    ]
    answer("owners", "--orphans", "--remove")
    assert answer("db", "upgrade", "--check")["problems"] == []


# ----------------------------------------------------------------------------------------------- locks


def test_an_installation_in_a_long_transaction_stops_no_task(channels, db, database_url):
    db.execute("CREATE TABLE feeds (id int PRIMARY KEY, enabled boolean); INSERT INTO feeds VALUES (1, true)")
    add(db, "feeds", "1")
    with connect(database_url) as migration, connect(database_url) as other, migration.transaction():
        put(migration, owners.triggers("feeds", active_when="enabled"))
        put(migration, owners.triggers("mail_channels", active_when=ACTIVE))
        put(migration, owners.drop_triggers("phones"))
        other.execute("SET lock_timeout = '1s'")
        other.execute("UPDATE ticker.tasks SET next_run = clock_timestamp(), last_run = clock_timestamp()")
        ticker.register(other, "poll", every="1m", owner="feeds:1")
        ticker.register(other, "poll", every="1m")
        ticker.unregister(other, owner="feeds:1")


def test_an_installation_that_waits_for_a_lock_blocks_nobody_for_long_and_says_what_it_waits_for(db, database_url):
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, enabled boolean); INSERT INTO channels VALUES (1, true)")
    add(db, "channels", "1")
    with connect(database_url) as application, connect(database_url) as migration, ThreadPoolExecutor() as pool:
        with application.transaction():
            application.execute("UPDATE public.channels SET enabled = false; UPDATE ticker.tasks SET name = 'x'")
            migration.execute("SET statement_timeout = 0")
            installing = pool.submit(put, migration, owners.triggers("channels", active_when="enabled"))
            blocked = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
            pid = [migration.info.backend_pid]
            until(lambda: db.execute(blocked, pid).fetchone() == ("Lock",), "the installation waits")
            until(lambda: db.execute(blocked, pid).fetchone() == ("Timeout",), "it lets the others go first")
            db.execute("INSERT INTO channels VALUES (2, true)")
        installing.result()
    assert states(db, "channels") == {"1": False}
