# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, for tests of the page."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from accesspoint.checks.harness.switches import wait_for

PACKAGES = {"chromium": "chromium", "chromedriver": "chromium-driver"}


def missing_browser() -> str | None:
    """Return the reason why no browser can run here, or None."""
    packages = [package for command, package in PACKAGES.items() if shutil.which(command) is None]
    return f"Chromium is missing: apt-get install {' '.join(packages)}" if packages else None


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to a page."""
        self.driver.get(url)

    def find(self, selector: str) -> WebElement:
        """Wait for the first element of a CSS selector, and return it."""
        found: WebElement = wait_for(lambda: next(iter(self.all(selector)), None))
        return found

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements that are present now."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click the first element of a CSS selector, once there is one."""
        self._act(selector, lambda element: element.click())

    def type(self, selector: str, keys: str) -> None:
        """Send keys to the first element of a CSS selector, once there is one."""
        self._act(selector, lambda element: element.send_keys(keys))

    def _act(self, selector: str, action: Callable[[WebElement], None]) -> None:
        def acted() -> bool:
            # The page may have drawn it anew since it was found.
            with contextlib.suppress(StaleElementReferenceException):
                action(self.find(selector))
                return True
            return False

        wait_for(acted)

    def text(self, selector: str) -> str:
        """Return the text of the first such element, or nothing."""
        with contextlib.suppress(NoSuchElementException, StaleElementReferenceException):
            return str(self.driver.find_element(By.CSS_SELECTOR, selector).text)
        return ""

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script; return its value."""
        return self.driver.execute_script(script, *arguments)

    def set(self, selector: str, value: object) -> None:
        """Give a form's element a value, as who uses the page does."""
        self.run(
            "const [element, value] = arguments; element.value = value;"
            "for (const kind of ['input', 'change']) element.dispatchEvent(new Event(kind, {bubbles: true}))",
            self.find(selector),
            str(value),
        )

    def colours(self, scheme: str) -> None:
        """Set the system's preferred colours: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def size(self, width: int, height: int, scale: float = 1.0) -> None:
        """The page's size in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def log_in(self, url: str, token: str) -> None:
        """As people do."""
        self.open(url)
        self.type("#token", token)
        self.click("form.login button")
        wait_for(lambda: self.text("#stream") == "live")

    def wait_text(self, selector: str, fits: Callable[[str], bool]) -> str:
        """Return the text of an element once it fits."""
        wait_for(lambda: fits(self.text(selector)))
        return self.text(selector)

    def complaints(self) -> list[str]:
        """Scripts' errors and refused loads since the last call; answers of the API that are problems are none."""
        lines = [str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [line for line in lines if "/api/v1/" not in line]


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is closed whatever happens."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Chromium leaves files in the folder for temporary ones.
    with tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True) as directory:
        service = webdriver.ChromeService(shutil.which("chromedriver"), env={**os.environ, "TMPDIR": directory})
        driver = webdriver.Chrome(options, service)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
