"""Secrets are found, words that only look like them are kept, and blocks' ends hide none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triage.engine.redaction import PATTERNS, LiteralPrefilter, Redactor, redact

# Made up at run time: a checked-in text that looks like a key alarms other people's scanners.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
HF_TOKEN = "hf_" + _LETTERS[:34]
GITHUB_TOKEN = "ghp_" + _LETTERS[-36:]
HEX_40 = "0123456789abcdef" * 2 + "01234567"
PRIVATE_KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n" + (_LETTERS + "\n") * 12 + "-----END RSA PRIVATE KEY-----"
)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"HF_TOKEN={HF_TOKEN}", HF_TOKEN),
        (f"login with {HF_TOKEN} worked", HF_TOKEN),
        (f"+ wandb login --relogin {HEX_40}", HEX_40),
        (f"export WANDB_API_KEY='{HEX_40}'", HEX_40),
        ("xoxb-" + "123456789012-abcDEF", "123456789012-abcDEF"),
        ("https://hooks.slack.com/" + "services/T000/B000/abcdefgh12345678", "abcdefgh12345678"),
        ("AKIA" + "IOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "wJalrXUtnFEMI"),
        (f"remote: https://me:{GITHUB_TOKEN}@github.com/a/b", GITHUB_TOKEN),
        (f"fatal: could not read https://{_LETTERS[:30]}@git.example/a", _LETTERS[:30]),
        ("redis://:s3cr3t@redis:6379/0", "s3cr3t"),
        ("postgres://app:p%40ss@db/train", "p%40ss"),
        ("Authorization: Bearer abcdefgh.ijkl", "abcdefgh.ijkl"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
        ('-H "X-Api-Key: 0123abcd4567"', "0123abcd4567"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("'password': 'correct horse battery'", "correct horse battery"),
        ('{"env": "{\\"MY_SERVICE_SECRET\\": \\"zzz-yyy\\"}"}', "zzz-yyy"),
        ("http://node-2:8888/?token=" + "0a1b2c3d4e5f6a7b", "0a1b2c3d4e5f6a7b"),
        ("python train.py --hf_token abc12345 --lr 1e-4", "abc12345"),
        ("machine api.wandb.ai login user password " + HEX_40, HEX_40),
        ("eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklm", "eyJzdWIi"),
        ("api_key: sk-" + "proj-abcdefghijklmnop0123456789", "abcdefghijklmnop0123456789"),
        (PRIVATE_KEY, _LETTERS),
    ],
)
def test_secrets_are_replaced(text: str, secret: str) -> None:
    cleaned, count = redact(text.encode())

    assert secret not in cleaned.decode()
    assert count >= 1
    assert b" removed]" in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "step 81324 | loss 3.3209 | tokens/s 84181.8 | mem 33.34GiB",
        "EOS_TOKEN=50256 PAD_TOKEN=<pad> unk_token='<unk>' num_tokens: 4096",
        "tokenizer = AutoTokenizer.from_pretrained(name, token=token)",
        "super().__init__(password=args.password, api_key=os.environ['API_KEY'])",
        "HF_TOKEN=None WANDB_API_KEY=${WANDB_API_KEY} MY_SECRET=***",
        "KeyError: 'secret'",
        "[sudo] password for bob: ",
        "MASTER_ADDR=10.0.0.1 tcp://10.0.0.1:29500 node-02:29500",
        "commit " + HEX_40,
        "mail to someone@example.org",
        "GOOGLE_APPLICATION_CREDENTIALS=/etc/keys/a.json",
        "task-abcdefghijklmnopqrstuvwxyz0123456789 done",
    ],
)
def test_words_that_look_like_secrets_are_kept(text: str) -> None:
    assert redact(text.encode()) == (text.encode(), 0)


def test_lines_keep_their_numbers() -> None:
    text = f"before\n{PRIVATE_KEY}\nafter".encode()

    cleaned, _ = redact(text)

    assert cleaned.count(b"\n") == text.count(b"\n")
    assert cleaned.endswith(b"\nafter")


def test_what_was_replaced_is_not_replaced_again() -> None:
    once, _ = redact(f"HF_TOKEN={HF_TOKEN}\nDB_PASSWORD=hunter2\n{PRIVATE_KEY}".encode())

    assert redact(once) == (once, 0)


@pytest.mark.parametrize("ends", [b"\n", b" "])
@pytest.mark.parametrize("size_bytes", [1, 7, 64, 1000])
def test_a_secret_cut_by_a_blocks_end_is_found(size_bytes: int, ends: bytes) -> None:
    text = ends.join(
        [b"x" * 300, f"HF_TOKEN={HF_TOKEN}".encode(), PRIVATE_KEY.encode(), b"y" * 9000]
    )
    redactor = Redactor()
    pieces: list[bytes] = []
    for at in range(0, len(text), size_bytes):
        pieces += redactor.feed(text[at : at + size_bytes])
    pieces += redactor.finish()

    cleaned = b"".join(pieces)
    assert HF_TOKEN.encode() not in cleaned
    assert _LETTERS.encode() not in cleaned
    assert cleaned.count(b"\n") == text.count(b"\n")
    assert cleaned.endswith(b"y" * 9000)


def test_a_line_without_end_is_not_held_back() -> None:
    redactor = Redactor()
    held = 0
    for _ in range(50):
        fed = 2**16
        given_back = sum(map(len, redactor.feed(b"A" * fed)))
        held += fed - given_back
        assert held <= 2**16

    assert held + 0 == sum(map(len, redactor.finish()))


def test_a_key_without_end_is_not_waited_for_for_ever() -> None:
    redactor = Redactor()
    start = b"-----BEGIN RSA " + b"PRIVATE KEY-----\n"
    given_back = sum(map(len, redactor.feed(start)))
    for _ in range(40):
        given_back += sum(map(len, redactor.feed(b"word " * 2000 + b"\n")))

    assert given_back > 300_000


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_pass_and_blocks_do_not_matter(text: bytes, size_bytes: int) -> None:
    redactor = Redactor(LiteralPrefilter(PATTERNS))
    pieces: list[bytes] = []
    for at in range(0, len(text), size_bytes):
        pieces += redactor.feed(text[at : at + size_bytes])
    pieces += redactor.finish()

    whole, count = redact(text)
    assert b"".join(pieces) == whole
    assert redactor.replaced == count
