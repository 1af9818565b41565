"""Passwords that are set while a broker runs, encrypted for the metadata store as Apache Kafka 3.9 does it.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,iterations:4096,
    salt:...,initializationVector:...,encryptedPassword:...,passwordLength:12          (one line; values in base64)

The key comes from `password.encoder.secret`, which is in no store. Pure: random bytes are an argument.
Source: Kafka's PasswordEncoder, CipherEncoder. Left out: AES/GCM, which Apache Kafka uses if it is told to.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

_SALT_BYTES, _BLOCK_BYTES = 256, 16
_CIPHER = "AES/CBC/PKCS5Padding"
_HASHES = {"PBKDF2WithHmacSHA512": "sha512", "PBKDF2WithHmacSHA256": "sha256", "PBKDF2WithHmacSHA1": "sha1"}
_FACTORY = "PBKDF2WithHmacSHA512"
ITERATIONS_MAX = 1_000_000
"""The most iterations that are computed for a stored password."""


class Undecodable(ValueError):
    """A stored password that cannot be decrypted: the secret is another one, or it is damaged."""


def encode(password: str, secret: str, *, iterations: int, key_bits: int, random_bytes: Callable[[int], bytes]) -> str:
    """The encrypted password. `key_bits` is rounded down to a length of AES."""
    key_bits = key_bits // 64 * 64
    salt, vector = random_bytes(_SALT_BYTES), random_bytes(_BLOCK_BYTES)
    key = hashlib.pbkdf2_hmac(_HASHES[_FACTORY], secret.encode(), salt, iterations, key_bits // 8)
    padder = PKCS7(8 * _BLOCK_BYTES).padder()
    padded = padder.update(password.encode()) + padder.finalize()
    cipher = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    fields = {
        "keyFactoryAlgorithm": _FACTORY,
        "cipherAlgorithm": _CIPHER,
        "keyLength": str(key_bits),
        "salt": b64encode(salt).decode(),
        "iterations": str(iterations),
        "initializationVector": b64encode(vector).decode(),
        "encryptedPassword": b64encode(cipher.update(padded) + cipher.finalize()).decode(),
        "passwordLength": str(len(password)),
    }
    return ",".join(f"{name}:{value}" for name, value in fields.items())


def decode(text: str, secret: str) -> str:
    """The password. Raises `Undecodable`, which names neither."""
    fields = dict(each.partition(":")[::2] for each in text.split(","))
    try:
        if fields["cipherAlgorithm"] != _CIPHER:
            raise Undecodable(f"its cipher {fields['cipherAlgorithm']} is not supported")
        iterations, key_bits = int(fields["iterations"]), int(fields["keyLength"])
        if not 0 < iterations <= ITERATIONS_MAX or key_bits not in (128, 192, 256):
            raise Undecodable("its iterations or its key length are out of bounds")
        salt, vector = b64decode(fields["salt"]), b64decode(fields["initializationVector"])
        key = hashlib.pbkdf2_hmac(
            _HASHES[fields["keyFactoryAlgorithm"]], secret.encode(), salt, iterations, key_bits // 8
        )
        cipher = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        padded = cipher.update(b64decode(fields["encryptedPassword"])) + cipher.finalize()
        unpadder = PKCS7(8 * _BLOCK_BYTES).unpadder()
        password = (unpadder.update(padded) + unpadder.finalize()).decode()
        if len(password) != int(fields["passwordLength"]):
            raise Undecodable("password.encoder.secret is another one than it was stored with")
    except Undecodable:
        raise
    except (KeyError, ValueError):
        raise Undecodable("password.encoder.secret is another one than it was stored with, or it is damaged") from None
    return password
