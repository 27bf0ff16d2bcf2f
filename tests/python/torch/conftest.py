import pytest
import torch
import torch._dynamo.testing


@pytest.fixture
def counter():
    """A backend that counts; a test forbids to compile again after the first call."""
    torch._dynamo.reset()
    yield torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch.compiler.set_stance("default")
