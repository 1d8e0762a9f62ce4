"""A pytest plugin: where a test has a command fail, that fails too which the proxy sends in its place.

On a shaped collection the proxy does not send the client's command but one of its own, which no fail point of a test knows.
Both runs that are compared have this, so that they are the same.
"""

import os

# As in src/session/run.
# What a command looks up before it writes is left to work, so that what fails is the writing.
_SENT_FOR = {"count": ["aggregate"], "find": ["aggregate"], "insert": ["update"], "delete": ["update"]}


# Of these a command would fail that they are not about.
_AS_THEY_ARE = ["test_Single-document_write_following_updateMany_is_retried"]


def pytest_collection_finish():
    import test
    import test.asynchronous

    configure = test.PyMongoTestCase.configure_fail_point
    configure_async = test.asynchronous.AsyncPyMongoTestCase.configure_fail_point

    def widened(client, command_args, off=False):
        configure(client, _widened(command_args), off=off)

    # The suite asks whether this is a coroutine function.
    async def widened_async(client, command_args, off=False):
        await configure_async(client, _widened(command_args), off=off)

    test.PyMongoTestCase.configure_fail_point = staticmethod(widened)
    test.asynchronous.AsyncPyMongoTestCase.configure_fail_point = staticmethod(widened_async)


def _widened(command_args):
    data = command_args.get("data", {})
    running = os.environ.get("PYTEST_CURRENT_TEST", "")
    if "failCommands" not in data or any(name in running for name in _AS_THEY_ARE):
        return command_args
    names = data["failCommands"]
    sent = [sent for name in names for sent in _SENT_FOR.get(name, [])]
    return {**command_args, "data": {**data, "failCommands": [*names, *sent]}}
