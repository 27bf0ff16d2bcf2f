import pytest
import torch
import torch._dynamo.testing


@pytest.fixture
def counter():
    """A backend that counts; a test forbids to compile again after the first call."""
    torch._dynamo.reset()
    yield torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch.compiler.set_stance("default")


@pytest.fixture(scope="module")
def genesis():
    """The first book alone, whose tokens are soon read."""
    from ropewalk.zoo import _train

    common, _ = _train._sources(_train._ROOT)
    kept, common.TRAIN_RANGES = common.TRAIN_RANGES, ["gen1:1-gen50:26"]
    _train._batches.cache_clear()
    yield
    common.TRAIN_RANGES = kept
    _train._batches.cache_clear()
