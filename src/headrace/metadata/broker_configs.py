"""Dynamic broker configs: read from /config/brokers/N for one broker and /config/brokers/<default> for all.

A broker's own value wins over the default for all, which wins over the value of the start. `config.dynamic` knows which
configs are dynamic and what they come to. A stored value that this broker cannot apply is ignored with a warning; the
others apply. Source: Kafka's `DynamicBrokerConfig`, `DynamicConfig.Broker`.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping

from headrace.config import BROKER_SETTINGS, BrokerConfig
from headrace.config.dynamic import (
    DYNAMIC,
    check_change,
    check_entity,
    check_names,
    dynamic_setting,
    effective,
    usable,
    value_of,
)
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.metadata.config_changes import Alteration
from headrace.metadata.entity_configs import BROKERS, DEFAULT, EntityConfigs
from headrace.types import BrokerId

log = logging.getLogger(__name__)

ALL = DEFAULT
Listener = Callable[[BrokerConfig, BrokerConfig], None]
"""Called with the settings before a change and after it."""
Check = Callable[[BrokerConfig], Awaitable[None]]
"""Raises `InvalidConfig` for settings that cannot be used, such as a file that is missing. It may take a while."""


class BrokerSettings:
    """The dynamic configs of one broker. Every broker can change the configs of every other."""

    def __init__(self, entities: EntityConfigs, broker_id: BrokerId, static: BrokerConfig) -> None:
        self._entities = entities
        self._entity = str(broker_id)
        self._static = static
        self._set: dict[str, Mapping[str, str]] = {name: {} for name in (ALL, self._entity)}
        self.current = static
        """The settings in force: a new object after each change."""
        self._listeners: list[Listener] = []
        self._checks: list[Check] = []
        entities.on_change(BROKERS, self._take)

    def number(self, name: str) -> int:
        """The effective value of a numeric config."""
        value = getattr(self.current, BROKER_SETTINGS[name][0])
        assert isinstance(value, int)
        return value

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` after each change from now on."""
        self._listeners.append(listener)

    def check_first(self, check: Check) -> None:
        """Calls `check` with the settings that a request for this broker would lead to, before they are stored."""
        self._checks.append(check)

    def set_for(self, entity: str) -> Mapping[str, str]:
        """The configs set for this broker (`entity` is its id) or for `ALL`, by name."""
        return self._set[entity]

    async def rewrite(self, entity: str, alteration: Alteration, *, validate_only: bool = False) -> None:
        """Alters the configs of a broker or of `ALL`.

        Raises `InvalidRequest` for a config that is fixed at the start, and for an invalid value or change.
        """
        check_names(alteration.names)
        if entity == ALL:
            check_entity(alteration.names)

        def decide(before: Mapping[str, str]) -> Mapping[str, str]:
            after = alteration.applied(before, self._list)
            new = {name: text for name, text in after.items() if before.get(name) != text}
            try:
                self._check(entity, new, after)
            except InvalidConfig as error:
                raise InvalidRequest(error.message) from None  # as Apache Kafka answers (KAFKA-13609)
            return {name: self._encoded(name, text) if name in new else text for name, text in after.items()}

        if self._checks and entity in self._set:
            await self._run_checks(entity, alteration)
        await self._entities.rewrite(BROKERS, entity, decide, validate_only=validate_only)

    async def reencode(self) -> None:
        """Encrypts this broker's stored passwords with `password.encoder.secret` where they were encrypted with
        `password.encoder.old.secret`. Raises `InvalidConfig` if there is no new secret for them.

        At the start, as Apache Kafka 3.9 does it; but it encrypts the others anew, too.
        """
        static = self._static
        old = static.password_encoder_old_secret
        if not old or old == static.password_encoder_secret:
            return

        def decide(before: Mapping[str, str]) -> Mapping[str, str]:
            return {name: self._reencoded(name, text) if _is_password(name) else text for name, text in before.items()}

        await self._entities.rewrite(BROKERS, self._entity, decide)

    def _reencoded(self, name: str, text: str) -> str:
        from headrace.security.password_encoder import Undecodable, decode

        static = self._static
        try:
            password = decode(text, static.password_encoder_old_secret)
        except Undecodable:
            return text  # `_decoded` reports it, unless the new secret fits
        if not static.password_encoder_secret:
            raise InvalidConfig(
                f"password.encoder.old.secret is set, and the stored password {name} was encrypted with it, but "
                f"password.encoder.secret is not set: set it"
            )
        log.info("the stored password %s is encrypted with the new password.encoder.secret from now on", name)
        return self._encoded(name, password)

    async def _run_checks(self, entity: str, alteration: Alteration) -> None:
        """Raises `InvalidRequest` if the settings of this broker cannot be used after the alteration."""
        try:
            after = usable(alteration.applied(self._set[entity], self._list), self._static)[0]
            layers = [after if name == entity else known for name, known in self._set.items()]
            wanted = effective(self._static, *layers)
            if wanted != self.current:
                for check in self._checks:
                    await check(wanted)
        except InvalidConfig as error:
            raise InvalidRequest(error.message) from None

    def _list(self, name: str) -> str | None:
        """The value in force of a config that is a list."""
        setting = DYNAMIC.get(name)
        return value_of(self.current, name) if setting is not None and setting.kind == "list" else None

    def _check(self, entity: str, new: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Raises `InvalidConfig` if the `new` values among the configs `after` a change cannot be applied here."""
        values = {**usable(after, self._static)[0], **new}
        if entity not in self._set:  # another broker's: only the values by themselves can be judged
            effective(self._static, values)
            return
        layers = [values if name == entity else known for name, known in self._set.items()]
        check_change(self.current, effective(self._static, *layers))

    def _encoded(self, name: str, text: str) -> str:
        """A new value as it is stored: a password is encrypted. Raises `InvalidRequest` without the secret for it."""
        if not _is_password(name):
            return text
        static = self._static
        if not static.password_encoder_secret:
            raise InvalidRequest(
                f"{name} would be stored for everybody to read: set password.encoder.secret when the broker starts"
            )
        from headrace.security.password_encoder import encode

        return encode(
            text,
            static.password_encoder_secret,
            iterations=static.password_encoder_iterations,
            key_bits=static.password_encoder_key_length,
            random_bytes=os.urandom,
        )

    def _decoded(self, values: Mapping[str, str]) -> dict[str, str]:
        """Stored values with their passwords, without those that cannot be decrypted."""
        found = dict(values)
        for name in [name for name in values if _is_password(name)]:
            from headrace.security.password_encoder import Undecodable, decode

            static, failure = self._static, "password.encoder.secret is not set"
            for secret in filter(None, (static.password_encoder_secret, static.password_encoder_old_secret)):
                try:
                    found[name] = decode(values[name], secret)
                    break
                except Undecodable as error:
                    failure = str(error)
            else:
                log.error("the stored password %s is ignored: %s", name, failure)
                del found[name]
        return found

    def _take(self, entity: str, values: Mapping[str, str]) -> None:
        if entity not in self._set:
            return
        values = self._decoded(values)
        known, refused = usable(values, self._static)
        for reason in refused:
            log.warning("a dynamic config of broker %s is ignored: %s", entity, reason)
        before, layers = self.current, {**self._set, entity: known}
        try:
            self.current = effective(self._static, *layers.values())
        except InvalidConfig as error:
            log.warning("the dynamic configs of broker %s do not fit and are ignored: %s", entity, error.message)
            return
        self._set = layers
        if self.current != before:
            for listener in self._listeners:
                listener(before, self.current)


def _is_password(name: str) -> bool:
    setting = dynamic_setting(name)
    return setting is not None and setting.kind == "password"
