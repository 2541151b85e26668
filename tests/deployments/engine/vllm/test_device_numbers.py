"""Workers say which device they have, by a method that vLLM's worker gets from us."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.worker.gpu_worker import Worker

from deployments.engine.vllm.arguments import DEVICE_NUMBER, WORKER_EXTENSION, engine_arguments
from deployments.engine.vllm.bridge import device_numbers
from deployments.engine.vllm.device_number import DeviceNumber
from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings


class Server:
    """As ``LLMServer`` with two workers that were extended: calls a method of each by its name."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    async def collective_rpc(self, method: str) -> list[Any]:
        assert callable(getattr(resolve_obj_by_qualname(DEVICE_NUMBER), method))
        return self._numbers


async def test_each_worker_is_asked_for_its_number() -> None:
    assert await device_numbers(Server([0, 2])) == [0, 2]


def test_the_method_has_a_name_that_vllms_worker_does_not_have() -> None:
    """vLLM refuses an extension that would replace something."""
    added = {name for name in dir(DeviceNumber) if not name.startswith("__")}
    assert added == {"promptly_device_number"}
    assert not added & set(dir(Worker))


@pytest.mark.parametrize(("devices", "is_extended"), [(1, False), (2, True)])
def test_only_an_engine_that_offloads_over_several_devices_is_extended(
    store: ModelStore, devices: int, is_extended: bool
) -> None:
    engine = {"tensor_parallel_size": devices, "placement": "strict_pack", "kv_offload": {"size_gib": 1.0}}
    model = ModelSettings.model_validate({"id": "m", "source": "owner/m", "engine": engine})
    assert (engine_arguments(model, store).get(WORKER_EXTENSION) == DEVICE_NUMBER) is is_extended


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    return ModelStore(tmp_path_factory.mktemp("store"))
