#!/usr/bin/env python3
"""Checks the HTTP/3 of a server with aioquic, an independent implementation; also with deliberate violations.

Prints `case TAB failure` for each case, with an empty failure for a passed one.
Usage: http3.py PORT CA-FILE, in an environment with aioquic. GET / and POST / must have responses with a body.
"""

import asyncio
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3_ALPN, ErrorCode, FrameType, H3Connection, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

SECONDS = 20


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.events, self.ends, self.closed = {}, {}, self._loop.create_future()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            if not self.closed.done():
                self.closed.set_result(event.error_code)
            for end in self.ends.values():
                if not end.done():
                    end.set_result(None)
        if isinstance(event, StreamReset) and event.stream_id in self.ends:
            self.events[event.stream_id].append(event)
            self.finish(event.stream_id)
        for seen in self.http.handle_event(event):
            if isinstance(seen, (HeadersReceived, DataReceived)) and seen.stream_id in self.events:
                self.events[seen.stream_id].append(seen)
                if seen.stream_ended:
                    self.finish(seen.stream_id)

    def finish(self, stream):
        if not self.ends[stream].done():
            self.ends[stream].set_result(None)

    def open(self):
        stream = self._quic.get_next_available_stream_id()
        self.events[stream], self.ends[stream] = [], self._loop.create_future()
        # Reserves the stream id.
        self._quic.send_stream_data(stream, b"")
        return stream

    def head(self, method="GET", path="/", more=()):
        named = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path), *more]
        return [(name.encode(), value.encode()) for name, value in named]

    async def answer(self, stream):
        """Status, or the code of the reset, and the body."""
        self.transmit()
        await asyncio.wait_for(self.ends[stream], SECONDS)
        events = self.events[stream]
        resets = [event.error_code for event in events if isinstance(event, StreamReset)]
        if resets:
            return resets[0], b""
        heads = [dict(event.headers) for event in events if isinstance(event, HeadersReceived)]
        assert heads, "the connection ended"
        return int(heads[0][b":status"]), b"".join(e.data for e in events if isinstance(e, DataReceived))

    async def ask(self, head=None, body=None):
        stream = self.open()
        self.http.send_headers(stream, head or self.head(), end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, True)
        return await self.answer(stream)

    async def is_closed_with(self, code):
        self.transmit()
        found = await asyncio.wait_for(self.closed, SECONDS)
        assert found == code, f"closed with {found:#x}, not {code:#x}"


async def serves(client, status=200, **how):
    found, body = await client.ask(**how)
    assert found == status, f"status {found}"
    return body


async def get(client):
    assert await serves(client)


async def body_of_known_length(client):
    body = b"x" * 200_000
    await serves(client, head=client.head("POST", more=[("content-length", str(len(body)))]), body=body)


async def body_of_unknown_length(client):
    await serves(client, head=client.head("POST"), body=b"x" * 200_000)


async def hundred_at_once(client):
    found = await asyncio.gather(*(client.ask() for _ in range(100)))
    assert all(status == 200 and body for status, body in found), "not all are whole"


async def other_address(client):
    await get(client)
    client._quic.change_connection_id()
    await get(client)


async def key_update(client):
    await get(client)
    client._quic.request_key_update()
    await get(client)


async def unknown_frames_and_streams_are_ignored(client):
    side = client._quic.get_next_available_stream_id(is_unidirectional=True)
    client._quic.send_stream_data(side, encode_uint_var(0x21 + 0x1F * 5) + b"whatever", False)
    stream = client.open()
    client._quic.send_stream_data(stream, encode_frame(0x21 + 0x1F * 3, b"whatever"))
    client.http.send_headers(stream, client.head(), end_stream=True)
    assert (await client.answer(stream))[0] == 200


async def refused_stream(client, fields):
    """Malformed requests are refused, and the connection continues."""
    status, _ = await client.ask(fields)
    assert status == ErrorCode.H3_MESSAGE_ERROR or 400 <= status < 500, f"status {status}"
    await get(client)


async def no_method(client):
    await refused_stream(client, client.head()[1:])


async def no_path(client):
    await refused_stream(client, client.head()[:3])


async def two_hosts(client):
    await refused_stream(client, client.head(more=[("host", "other.test")]))


async def newline_in_value(client):
    await refused_stream(client, client.head(more=[("x-a", "b\r\nx-c: d")]))


async def wrong_length(client):
    status, _ = await client.ask(client.head("POST", more=[("content-length", "3")]), b"longer")
    assert status != 200, "the body was believed"
    await get(client)


async def data_before_head(client):
    stream = client.open()
    client._quic.send_stream_data(stream, encode_frame(FrameType.DATA, b"body"), True)
    await client.is_closed_with(ErrorCode.H3_FRAME_UNEXPECTED)


async def settings_on_request_stream(client):
    stream = client.open()
    client._quic.send_stream_data(stream, encode_frame(FrameType.SETTINGS, b""), True)
    await client.is_closed_with(ErrorCode.H3_FRAME_UNEXPECTED)


async def second_settings(client):
    frame = encode_frame(FrameType.SETTINGS, b"")
    client._quic.send_stream_data(client.http._local_control_stream_id, frame)
    await client.is_closed_with(ErrorCode.H3_FRAME_UNEXPECTED)


async def second_control_stream(client):
    side = client._quic.get_next_available_stream_id(is_unidirectional=True)
    client._quic.send_stream_data(side, encode_uint_var(0))
    await client.is_closed_with(ErrorCode.H3_STREAM_CREATION_ERROR)


async def control_stream_ends(client):
    client._quic.send_stream_data(client.http._local_control_stream_id, b"", True)
    await client.is_closed_with(ErrorCode.H3_CLOSED_CRITICAL_STREAM)


CASES = [get, body_of_known_length, body_of_unknown_length, hundred_at_once, other_address, key_update,
         unknown_frames_and_streams_are_ignored, no_method, no_path, two_hosts, newline_in_value, wrong_length,
         data_before_head, settings_on_request_stream, second_settings, second_control_stream, control_stream_ends]


async def run(case, port, ca_file):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    configuration.load_verify_locations(ca_file)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        await case(client)


def main():
    port, ca_file = int(sys.argv[1]), sys.argv[2]
    for case in CASES:
        why = ""
        try:
            asyncio.run(run(case, port, ca_file))
        except Exception as error:
            why = f"{type(error).__name__} {error}".replace("\n", " ")
        print(f"{case.__name__}\t{why}")


if __name__ == "__main__":
    main()
