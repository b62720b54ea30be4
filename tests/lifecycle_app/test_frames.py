"""The frame codec: bytes split and glued anywhere, and every header that lies."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_app.frames import (
    LENGTHS_MAX,
    Frame,
    FrameDecoder,
    FrameFault,
    FrameRefused,
    FrameType,
    check_whole,
    encode_frame,
)
from lifecycle_app.limits import FRAME_BYTES_MAX

frames = st.builds(Frame, st.sampled_from(list(FrameType)), st.binary(max_size=200))


def decode_all(decoder: FrameDecoder, pieces: list[bytes]) -> list[Frame]:
    found = []
    for piece in pieces:
        decoder.feed(piece)
        while (frame := decoder.next_frame()) is not None:
            found.append(frame)
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 5000), max_size=12))
def test_frames_come_out_whole_however_they_were_cut(sent, places):
    data = b"".join(encode_frame(frame.type, frame.body) for frame in sent)
    decoder = FrameDecoder()
    assert decode_all(decoder, cut(data, places)) == sent
    assert decoder.buffered == 0


def test_frames_come_out_when_split_at_every_byte_and_when_glued():
    sent = [Frame(FrameType.TASK_REPORT, b"x" * 300), Frame(FrameType.IDENTITY, b""), Frame(FrameType.LEGACY_9, b"{}")]
    data = b"".join(encode_frame(frame.type, frame.body) for frame in sent)
    assert decode_all(FrameDecoder(), [data]) == sent
    assert decode_all(FrameDecoder(), [data[at : at + 1] for at in range(len(data))]) == sent
    for at in range(len(data) + 1):
        assert decode_all(FrameDecoder(), [data[:at], data[at:]]) == sent


def test_the_frame_is_type_then_big_endian_length_then_body():
    assert encode_frame(FrameType.TASK_COMMAND, b"{}") == b"\x0b\x00\x00\x00\x02{}"


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_an_oversize_length_is_refused_on_the_header_alone(length):
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">BI", 12, length))
    with pytest.raises(FrameRefused) as refused:
        decoder.next_frame()
    assert refused.value.fault is FrameFault.OVERSIZE
    assert decoder.buffered == 5  # nothing was allocated for the body


def test_the_largest_length_is_taken_without_making_room_for_it():
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">BI", 12, FRAME_BYTES_MAX))
    assert decoder.next_frame() is None
    assert decoder.buffered == 5
    decoder.feed(b"x" * FRAME_BYTES_MAX)
    frame = decoder.next_frame()
    assert frame is not None and len(frame.body) == FRAME_BYTES_MAX


@pytest.mark.parametrize("code", [14, 15, 100, 127, 128, 255])
def test_an_unknown_type_is_refused_before_its_length_is_looked_at(code):
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">BI", code, 2**32 - 1))
    with pytest.raises(FrameRefused) as refused:
        decoder.next_frame()
    assert refused.value.fault is FrameFault.UNKNOWN_TYPE


def test_a_type_that_may_not_come_now_is_refused_and_so_is_its_length():
    decoder = FrameDecoder({FrameType.IDENTITY: 10})
    decoder.feed(struct.pack(">BI", 0, 11))
    with pytest.raises(FrameRefused) as refused:
        decoder.next_frame()
    assert refused.value.fault is FrameFault.OVERSIZE
    decoder = FrameDecoder({FrameType.IDENTITY: 10})
    decoder.feed(struct.pack(">BI", 12, 1))
    with pytest.raises(FrameRefused) as refused:
        decoder.next_frame()
    assert refused.value.fault is FrameFault.UNKNOWN_TYPE


def test_a_length_shorter_than_what_was_sent_makes_the_rest_the_next_header():
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">BI", 3, 2) + b"{}" + b"trailing")
    assert decoder.next_frame() == Frame(FrameType.GALLERY_STATUS, b"{}")
    with pytest.raises(FrameRefused):  # "t" is 116: no type
        decoder.next_frame()


def test_a_length_longer_than_what_was_sent_only_waits():
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">BI", 3, 3) + b"{}")
    assert decoder.next_frame() is None


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_noise_ends_in_frames_or_one_refusal_and_cuts_do_not_change_which(noise, places):
    def outcome(pieces):
        decoder = FrameDecoder()
        found: list[object] = []
        for piece in pieces:
            decoder.feed(piece)
            try:
                while (frame := decoder.next_frame()) is not None:
                    found.append(frame)
            except FrameRefused as refused:
                return [*found, refused.fault]
        return found

    assert outcome([noise]) == outcome(cut(noise, places))


def test_what_is_held_never_grows_past_what_was_fed_and_shrinks_as_frames_are_read():
    decoder = FrameDecoder()
    one = encode_frame(FrameType.GALLERY_STATUS, b"{}")
    decoder.feed(one * 10_000)
    for _ in range(10_000):
        assert decoder.next_frame() is not None
    assert decoder.buffered == 0
    assert len(decoder._buffer) == 0


def test_more_than_the_limit_is_never_encoded():
    assert encode_frame(FrameType.TASK_REPORT, b"x" * FRAME_BYTES_MAX)
    with pytest.raises(ValueError, match="may hold"):
        encode_frame(FrameType.TASK_REPORT, b"x" * (FRAME_BYTES_MAX + 1))


@given(st.lists(frames, min_size=1, max_size=6))
def test_a_message_of_whole_frames_is_whole_and_every_cut_of_it_is_not(sent):
    data = b"".join(encode_frame(frame.type, frame.body) for frame in sent)
    check_whole(data)
    ends = {0}
    for frame in sent:
        ends.add(max(ends) + 5 + len(frame.body))
    for at in range(len(data)):
        if at not in ends:
            with pytest.raises(FrameRefused):
                check_whole(data[:at])


def test_an_empty_message_is_not_whole():
    with pytest.raises(FrameRefused):
        check_whole(b"")


def test_the_limit_is_one_mebibyte_for_every_type():
    assert set(LENGTHS_MAX.values()) == {1024 * 1024}
    assert set(LENGTHS_MAX) == set(range(14))
