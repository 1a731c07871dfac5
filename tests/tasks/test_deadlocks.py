"""Two transactions that register the same owners in opposite orders: one goes on, and the other is told what to do."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier, Event

import psycopg
import psycopg2
import pytest
import sqlalchemy as sa

import ticker
from tests.sentences import sentence
from ticker import aio
from ticker.errors import RowLocked

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ", "db")]
ORDERS = (("a:1", "a:2"), ("a:2", "a:1"))


def psycopg_2(url):
    return closing(psycopg2.connect(url))


def sqlalchemy(url):
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=sa.NullPool).connect()


@pytest.mark.parametrize("connect", [psycopg.connect, psycopg_2, sqlalchemy])
def test_the_loser_of_a_deadlock_is_told_what_to_do_and_may_repeat_its_transaction(connect, database_url, db):
    both, one_is_done = Barrier(2, timeout=20), Event()

    def registers(owners):
        with connect(database_url) as connection:
            for attempt in range(2):
                try:
                    for owner in owners:
                        ticker.register(connection, "poll", every="1m", owner=owner)
                        if owner == owners[0] and attempt == 0:
                            both.wait()
                    connection.commit()
                    one_is_done.set()
                    return errors
                except RowLocked as error:
                    errors.append(str(error))
                    connection.rollback()
                    one_is_done.wait(20)  # otherwise, both might meet again
        return errors

    errors = []
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(registers, ORDERS))
    assert errors == [sentence("errors.deadlock")]
    assert {task.owner for task in ticker.list_tasks(db)} == {"a:1", "a:2"}


def test_an_asynchronous_transaction_is_told_so_too(database_url):
    async def registers(owners, first, other):
        async with await psycopg.AsyncConnection.connect(database_url) as db:
            await aio.register(db, "poll", every="1m", owner=owners[0])
            first.set()
            await other.wait()
            await aio.register(db, "poll", every="1m", owner=owners[1])

    async def both():
        one, two = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(
            registers(ORDERS[0], one, two), registers(ORDERS[1], two, one), return_exceptions=True
        )

    errors = [error for error in asyncio.run(both()) if error is not None]
    assert [(type(error), str(error)) for error in errors] == [(RowLocked, sentence("errors.deadlock"))]
