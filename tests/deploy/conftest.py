from tests.browser.conftest import complaints

__all__ = ["complaints"]
