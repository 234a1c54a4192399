"""A validated configuration."""

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from nodeagent.config.contradictions import contradictions
from nodeagent.config.options import Options


class AgentConfig(Options):
    """The whole configuration. Raises pydantic.ValidationError for wrong values, single or in combination."""

    @model_validator(mode="after")
    def _without_contradictions(self) -> Self:
        found = list(contradictions(self))
        if found:
            text = "; ".join(f"{contradiction.key} {contradiction.reason}" for contradiction in found)
            raise PydanticCustomError("contradictions", "{text}", {"text": text})
        return self
