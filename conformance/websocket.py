#!/usr/bin/env python3
"""WebSockets through the gateway: wsproto as the client, the library `websockets` as the server.

Prints `case TAB why it failed` for each case, with nothing behind the tab where it passed.
Usage: websocket.py serve PORT TLS-PORT CERT KEY | websocket.py ask KIND HTTP-PORT HTTPS-PORT CA-FILE
with KIND one of http1, tls, h2c, h2 and h3. Paths below /ws/ must lead to PORT, those below /wss/ to TLS-PORT.
"""

import asyncio
import base64
import json
import os
import ssl
import sys
from urllib.parse import parse_qs, urlsplit

SECONDS = 60
SIZES = (0, 1, 125, 126, 127, 4096, 65535, 65536, 100_000, 1024 * 1024, 3_000_001)
CODES = ((1000, ""), (1001, "away"), (1003, "not this"), (1008, "no"), (1011, "broken"), (3000, "ours"), (4999, "x" * 123))
FLOOD_BYTES, FLOOD_PIECE = 64 * 1024 * 1024, 64 * 1024


# The server.

closed, flooded = {}, {}


async def count_fragments(ws):
    """Echoes each message in the same fragments, followed by their number."""
    while True:
        count = 0

        async def back():
            nonlocal count
            async for fragment in ws.recv_streaming():
                count += 1
                yield fragment

        await ws.send(back())
        await ws.send(str(count))


async def serve_one(ws):
    url = urlsplit(ws.request.path)
    what, asked = url.path.rsplit("/", 1)[1], {name: value[0] for name, value in parse_qs(url.query).items()}
    if what == "echo":
        async for message in ws:
            await ws.send(message)
    elif what == "fragments":
        await count_fragments(ws)
    elif what == "ping":
        await asyncio.wait_for(await ws.ping(b"are you there"), SECONDS)
        await ws.send("answered")
    elif what == "close":
        await ws.close(int(asked["code"]), asked.get("reason", ""))
    elif what == "closed":
        await ws.wait_closed()
        closed[asked["id"]] = [ws.close_code, ws.close_reason]
    elif what == "ask":
        while asked["id"] not in closed:
            await asyncio.sleep(0.01)
        await ws.send(json.dumps(closed[asked["id"]]))
    elif what == "abort":
        await ws.recv()
        ws.transport.abort()
    elif what == "flood":
        for at in range(0, FLOOD_BYTES, FLOOD_PIECE):
            await ws.send(bytes([at // FLOOD_PIECE % 251]) * FLOOD_PIECE)
            flooded[asked["id"]] = at + FLOOD_PIECE
    elif what == "flooded":
        await ws.send(str(flooded.get(asked["id"], 0)))


def refuse(connection, request):
    return connection.respond(403, "not here") if "/refuse" in request.path else None


def choose(connection, offered):
    """The server's preference; a client may ignore it."""
    return next((name for name in ("chat.v2", "chat.v1") if name in offered), None)


async def serve(port, tls_port, cert, key):
    from websockets.asyncio.server import serve as listen

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    how = dict(max_size=None, select_subprotocol=choose, process_request=refuse, ping_interval=None)
    async with listen(serve_one, "127.0.0.1", port, **how), listen(serve_one, "127.0.0.1", tls_port, ssl=tls, **how):
        await asyncio.get_running_loop().create_future()


# Transports to the gateway: each opens one byte stream, and reports the response status.


class Http1:
    can_half_close = True
    broken_off = reset_with = None

    def __init__(self, ports, ca, tls=False):
        self.port, self.context, self.read_bytes = ports[tls], None, 0
        if tls:
            self.context = ssl.create_default_context(cafile=ca)
            self.can_half_close = False

    async def open(self, path, fields):
        name = "localhost" if self.context else None
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.context, server_hostname=name)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket",
                 f"Sec-WebSocket-Key: {key}", *(f"{name}: {value}" for name, value in fields)]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        told = dict(line.split(": ", 1) for line in head[1:] if line)
        status = int(head[0].split()[1])
        return 200 if status == 101 else status, {name.lower(): value for name, value in told.items()}

    async def write(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def read(self):
        data = await self.reader.read(65536)
        self.read_bytes += len(data)
        return data

    def pause(self):
        self.writer.transport.pause_reading()

    def resume(self):
        self.writer.transport.resume_reading()

    async def end(self):
        self.writer.write_eof()

    async def finish(self):
        self.writer.close()

    async def abort(self):
        self.writer.transport.abort()

    async def close(self):
        self.writer.close()


def extended(path, fields):
    named = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":authority", "localhost"),
             (":path", path), *fields]
    return [(name.lower(), value) for name, value in named]


class Http2:
    can_half_close = True
    # The opcode of the end after the other side broke off, if any.
    broken_off, reset_with = 8, None

    def __init__(self, ports, ca, tls=False):
        self.port, self.context, self.read_bytes = ports[tls], None, 0
        if tls:
            self.context = ssl.create_default_context(cafile=ca)
            self.context.set_alpn_protocols(["h2"])

    async def open(self, path, fields):
        import h2.config
        import h2.connection
        import h2.events
        import h2.settings

        self.kinds = h2.events
        name = "localhost" if self.context else None
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.context, server_hostname=name)
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.http.initiate_connection()
        self.waiting, self.moved = asyncio.Queue(), asyncio.Event()
        self.status, self.ended, self.said_all = None, False, False
        self.flush()
        while not self.http.remote_settings.enable_connect_protocol:
            await self.receive()
        self.stream = self.http.get_next_available_stream_id()
        self.http.send_headers(self.stream, extended(path, fields))
        self.flush()
        while self.status is None and not self.ended:
            await self.receive()
        self.receiving = asyncio.create_task(self.receive_all())
        return self.status or 0, self.told

    def flush(self):
        self.writer.write(self.http.data_to_send())

    async def receive(self):
        data = await self.reader.read(65536)
        if not data:
            self.ended = True
        for event in self.http.receive_data(data) if data else []:
            if isinstance(event, self.kinds.ResponseReceived):
                self.told = dict(event.headers)
                self.status = int(self.told[":status"])
            elif isinstance(event, self.kinds.DataReceived):
                self.waiting.put_nowait((event.data, event.flow_controlled_length))
            elif isinstance(event, self.kinds.StreamEnded):
                self.ended = True
            elif isinstance(event, (self.kinds.StreamReset, self.kinds.ConnectionTerminated)):
                self.ended = self.said_all = True
                self.reset_with = event.error_code
        if self.ended:
            self.waiting.put_nowait((b"", 0))
        self.flush()
        self.moved.set()

    async def receive_all(self):
        while not self.ended:
            await self.receive()

    async def write(self, data):
        while data and not self.ended:
            room = min(self.http.local_flow_control_window(self.stream), self.http.max_outbound_frame_size)
            if room <= 0:
                self.moved.clear()
                await self.moved.wait()
                continue
            self.http.send_data(self.stream, data[:room])
            data = data[room:]
            self.flush()
            await self.writer.drain()

    async def read(self):
        data, taken = await self.waiting.get()
        self.read_bytes += len(data)
        # The window only opens as bytes are read, so a client that stops reading blocks the server.
        if taken and not self.ended:
            self.http.acknowledge_received_data(taken, self.stream)
            self.flush()
        return data

    def pause(self):
        pass

    resume = pause

    async def end(self):
        self.said_all = True
        self.http.end_stream(self.stream)
        self.flush()

    async def finish(self):
        if not self.said_all and self.status is not None:
            await self.end()

    async def abort(self):
        self.http.reset_stream(self.stream, 8)
        self.flush()

    async def close(self):
        self.receiving.cancel()
        self.writer.close()


class Http3:
    can_half_close = True
    broken_off, reset_with = 0x10C, None

    def __init__(self, ports, ca):
        self.port, self.ca, self.read_bytes, self.said_all = ports[1], ca, 0, False

    async def open(self, path, fields):
        from aioquic.asyncio.client import connect
        from aioquic.asyncio.protocol import QuicConnectionProtocol
        from aioquic.h3.connection import H3_ALPN, H3Connection
        from aioquic.h3.events import DataReceived, HeadersReceived
        from aioquic.quic.configuration import QuicConfiguration
        from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StreamReset

        way = self
        self.waiting, self.answered = asyncio.Queue(), asyncio.get_running_loop().create_future()

        class Client(QuicConnectionProtocol):
            http = None

            def quic_event_received(self, event):
                if isinstance(event, ProtocolNegotiated):
                    self.http = H3Connection(self._quic)
                if isinstance(event, (ConnectionTerminated, StreamReset)):
                    way.said_all = True
                    way.reset_with = event.error_code
                    way.over()
                for seen in self.http.handle_event(event) if self.http else []:
                    if isinstance(seen, HeadersReceived) and not way.answered.done():
                        told = {name.decode(): value.decode() for name, value in seen.headers}
                        way.answered.set_result((int(told[":status"]), told))
                    if isinstance(seen, DataReceived) and seen.data:
                        way.waiting.put_nowait(seen.data)
                    if getattr(seen, "stream_ended", False):
                        way.over()

        configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
        configuration.load_verify_locations(self.ca)
        self.connecting = connect("127.0.0.1", self.port, configuration=configuration, create_protocol=Client)
        self.client = await self.connecting.__aenter__()
        while self.client.http.received_settings is None:
            await asyncio.sleep(0.001)
        assert self.client.http.received_settings.get(8) == 1, "the server does not offer it"
        self.stream = self.client._quic.get_next_available_stream_id()
        named = [(name.encode(), value.encode()) for name, value in extended(path, fields)]
        self.client.http.send_headers(self.stream, named)
        self.client.transmit()
        return await self.answered

    def over(self):
        if not self.answered.done():
            self.answered.set_result((0, {}))
        self.waiting.put_nowait(b"")

    async def write(self, data):
        for at in range(0, len(data), 16384):
            self.client.http.send_data(self.stream, data[at:at + 16384], False)
            self.client.transmit()
            await asyncio.sleep(0)

    async def read(self):
        data = await self.waiting.get()
        self.read_bytes += len(data)
        return data

    # The library reads everything, so pausing removes its socket reader.
    def pause(self):
        asyncio.get_running_loop()._remove_reader(self.client._transport._sock_fd)

    def resume(self):
        transport = self.client._transport
        asyncio.get_running_loop()._add_reader(transport._sock_fd, transport._read_ready)

    async def end(self):
        self.said_all = True
        self.client.http.send_data(self.stream, b"", True)
        self.client.transmit()

    async def finish(self):
        if not self.said_all:
            await self.end()

    async def abort(self):
        self.client._quic.reset_stream(self.stream, 0x10C)
        self.client._quic.stop_stream(self.stream, 0x10C)
        self.client.transmit()

    async def close(self):
        self.client.close()


WAYS = {
    "http1": Http1,
    "tls": lambda ports, ca: Http1(ports, ca, tls=True),
    "h2c": Http2,
    "h2": lambda ports, ca: Http2(ports, ca, tls=True),
    "h3": Http3,
}


class Socket:
    """Frames over a transport."""

    def __init__(self, way):
        self.way, self.frames = way, None

    async def open(self, path, *, deflate=False, protocols=()):
        from wsproto.connection import Connection, ConnectionType
        from wsproto.extensions import PerMessageDeflate

        fields = [("Sec-WebSocket-Version", "13")]
        offer = PerMessageDeflate()
        if deflate:
            fields.append(("Sec-WebSocket-Extensions", f"permessage-deflate; {offer.offer()}"))
        if protocols:
            fields.append(("Sec-WebSocket-Protocol", ", ".join(protocols)))
        self.status, self.told = await self.way.open(path, fields)
        extensions = []
        if deflate and "sec-websocket-extensions" in self.told:
            offer.finalize(self.told["sec-websocket-extensions"])
            extensions = [offer]
        self.frames = Connection(ConnectionType.CLIENT, extensions)
        self.events = self.receive()
        return self

    async def receive(self):
        while True:
            data = await self.way.read()
            if not data:
                # Servers wait for the close.
                await self.way.finish()
                return
            self.frames.receive_data(data)
            for event in self.frames.events():
                yield event

    async def send(self, event):
        await self.way.write(self.frames.send(event))

    async def next(self):
        """The event of the next frame; `None` at the end."""
        return await anext(self.events, None)

    async def message(self):
        """The next complete message, and its number of frames."""
        from wsproto.events import BytesMessage, Ping, TextMessage

        whole, count = [], 0
        while True:
            event = await self.next()
            if isinstance(event, Ping):
                await self.send(event.response())
                continue
            assert isinstance(event, (BytesMessage, TextMessage)), f"not a message: {event!r}"
            whole.append(event.data)
            count += event.frame_finished
            if event.message_finished:
                empty = "" if isinstance(event, TextMessage) else b""
                return empty.join(whole), count


def noise(size):
    return os.urandom(size)


async def messages_of_all_sizes(open):
    from wsproto.events import Message

    ws = await open("echo")
    for size in SIZES:
        for sent in (noise(size), "é" * (size // 2) + "x" * (size % 2)):
            _, (back, _) = await asyncio.gather(ws.send(Message(data=sent)), ws.message())
            assert back == sent, f"{type(sent).__name__} of {size} bytes is not the same"


async def many_small_ones_in_order(open):
    from wsproto.events import Message

    ws = await open("echo")
    sent = [f"{number}" for number in range(3000)]

    async def send():
        for text in sent:
            await ws.send(Message(data=text))

    sending = asyncio.create_task(send())
    back = [(await ws.message())[0] for _ in sent]
    await sending
    assert back == sent


async def fragments_stay_fragments(open):
    from wsproto.events import Message

    ws = await open("fragments")
    for sizes in ([0, 0], [1] * 50, [0, 5, 0, 70_000, 0], [500_000, 500_000, 1]):
        pieces = [noise(size) for size in sizes]
        for at, piece in enumerate(pieces):
            await ws.send(Message(data=piece, message_finished=at + 1 == len(pieces)))
        back, _ = await ws.message()
        assert back == b"".join(pieces), f"{sizes}: not the same"
        count, _ = await ws.message()
        assert int(count) == len(sizes), f"{sizes}: arrived as {count}"


async def control_frames_pass_between_fragments(open):
    from wsproto.events import Message, Ping, Pong

    ws = await open("echo")
    await ws.send(Message(data="one ", message_finished=False))
    await ws.send(Ping(payload=b"x" * 125))
    event = await ws.next()
    assert isinstance(event, Pong) and bytes(event.payload) == b"x" * 125, f"{event!r}"
    await ws.send(Pong(payload=b"nobody asked"))
    await ws.send(Message(data="two", message_finished=True))
    assert (await ws.message())[0] == "one two"


async def pings_of_the_server_are_answered(open):
    ws = await open("ping")
    assert (await ws.message())[0] == "answered"


async def close_codes_of_the_server(open):
    from urllib.parse import quote

    from wsproto.events import CloseConnection

    for code, reason in CODES:
        ws = await open(f"close?code={code}&reason={quote(reason)}")
        event = await ws.next()
        assert isinstance(event, CloseConnection), f"{event!r}"
        assert (event.code, event.reason or "") == (code, reason), f"{event!r}"
        await ws.send(event.response())
        assert await ws.next() is None, "something follows the end"


async def told(open, key):
    ws = await open(f"ask?id={key}")
    return json.loads((await ws.message())[0])


async def close_codes_of_the_client(open):
    from wsproto.events import CloseConnection

    for code, reason in CODES:
        key = noise(8).hex()
        ws = await open(f"closed?id={key}")
        await ws.send(CloseConnection(code=code, reason=reason))
        event = await ws.next()
        assert isinstance(event, CloseConnection) and event.code == code, f"{event!r}"
        assert await ws.next() is None, "something follows the end"
        assert await told(open, key) == [code, reason]


async def a_client_that_vanishes_is_seen_to(open):
    key = noise(8).hex()
    ws = await open(f"closed?id={key}")
    await ws.way.abort()
    assert await told(open, key) == [1006, ""]


async def a_server_that_vanishes_is_seen_to(open):
    from wsproto.events import Message

    ws = await open("abort")
    await ws.send(Message(data="now"))
    try:
        assert await ws.next() is None, "something came"
    except ConnectionError:
        pass
    assert ws.way.reset_with in (None, ws.way.broken_off), f"reset with {ws.way.reset_with}"


async def compression_passes_through(open):
    from wsproto.events import Message

    ws = await open("echo", deflate=True)
    assert "permessage-deflate" in ws.told.get("sec-websocket-extensions", ""), f"{ws.told}"
    before = ws.way.read_bytes
    text = "the same again, " * 65536
    await ws.send(Message(data=text))
    assert (await ws.message())[0] == text
    taken = ws.way.read_bytes - before
    assert taken < len(text) / 50, f"{taken} bytes came"


async def the_subprotocol_is_agreed_on(open):
    for offered, expected in ((["chat.v1", "chat.v2"], "chat.v2"), (["chat.v1"], "chat.v1"), ([], None)):
        ws = await open("echo", protocols=offered)
        assert ws.told.get("sec-websocket-protocol") == expected, f"{offered}: {ws.told}"


async def a_client_that_says_no_more_hears_the_rest(open):
    from wsproto.events import CloseConnection, Message

    ws = await open("echo")
    if not ws.way.can_half_close:
        return "not told apart from a close by this client's TLS"
    await ws.send(Message(data="one"))
    assert (await ws.message())[0] == "one"
    await ws.send(CloseConnection(code=1000))
    await ws.way.end()
    event = await ws.next()
    assert isinstance(event, CloseConnection) and event.code == 1000, f"{event!r}"
    assert await ws.next() is None


async def a_slow_reader_holds_the_server_up_and_loses_nothing(open):
    key = noise(8).hex()
    ws = await open(f"flood?id={key}")
    ws.way.pause()
    before = -1
    while True:
        sent = int((await (await open(f"flooded?id={key}")).message())[0])
        if sent == before and sent > 0:
            break
        before = sent
        await asyncio.sleep(1)
    # Linux itself buffers much of a fast flow: 33 MB received, and 4 MB to send per connection.
    assert sent < FLOOD_BYTES * 3 / 4, f"{sent} bytes were taken of the server"
    ws.way.resume()
    for at in range(FLOOD_BYTES // FLOOD_PIECE):
        piece, _ = await ws.message()
        assert piece == bytes([at % 251]) * FLOOD_PIECE, f"piece {at} is not the same"


async def an_answer_that_is_no_socket_is_passed_on(open):
    ws = await open("refuse", expected=403)
    assert b"not here" in await ws.way.read()


CASES = [messages_of_all_sizes, many_small_ones_in_order, fragments_stay_fragments,
         control_frames_pass_between_fragments, pings_of_the_server_are_answered, close_codes_of_the_server,
         close_codes_of_the_client, a_client_that_vanishes_is_seen_to, a_server_that_vanishes_is_seen_to,
         compression_passes_through, the_subprotocol_is_agreed_on, a_client_that_says_no_more_hears_the_rest,
         a_slow_reader_holds_the_server_up_and_loses_nothing, an_answer_that_is_no_socket_is_passed_on]


async def run(case, kind, upstream, ports, ca):
    sockets = []

    async def open(what, *, expected=200, **how):
        ws = await Socket(WAYS[kind](ports, ca)).open(f"/{upstream}/{what}", **how)
        sockets.append(ws)
        assert ws.status == expected, f"status {ws.status}"
        return ws

    try:
        await asyncio.wait_for(case(open), SECONDS)
    finally:
        for ws in sockets:
            await ws.way.close()


def main():
    if sys.argv[1] == "serve":
        port, tls_port, cert, key = int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
        return asyncio.run(serve(port, tls_port, cert, key))
    kind, ports, ca = sys.argv[2], (int(sys.argv[3]), int(sys.argv[4])), sys.argv[5]
    for upstream in ("ws", "wss"):
        for case in CASES:
            why = ""
            try:
                asyncio.run(run(case, kind, upstream, ports, ca))
            except Exception as error:
                why = f"{type(error).__name__} {error}".replace("\n", " ")
            print(f"{upstream} {case.__name__}\t{why}", flush=True)


if __name__ == "__main__":
    main()
