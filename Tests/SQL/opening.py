"""What the statements promise that make the tables and drop them."""

from store import claim, expect, put


def destroys(engine):
    """A store that was destroyed leaves nothing, so that it can be made again at its place."""
    session = engine.reset()
    for _ in range(2):
        put(session, 1, "k")
        expect(claim(session), [1])
        session.run("set the value", "a", b"1")
        for _ in range(2):
            session.destroy()
        expect(session.relations(), [])
        session.make_tables()
    expect(claim(session), [])


CHECKS = [destroys]
ONLY_IN_POSTGRESQL = []
