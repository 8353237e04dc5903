"""Take a picture of the page in headless Chromium: ``python scripts/screenshot.py URL OUT.png [--ask Q] [--dark]``."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def open_browser(log: bool = False) -> Iterator[webdriver.Chrome]:
    """Start Debian's Chromium with a fresh profile; ``log`` records console lines and network requests."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        sys.exit("chromium and chromedriver are needed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    if log:
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="baton-chromium-", ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield chrome
        finally:
            chrome.quit()


def emulate(browser: webdriver.Chrome, width: int, height: int, dark: bool = False) -> None:
    """Give the page a viewport in CSS pixels and a colour scheme."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="1200x850", help="viewport, WIDTHxHEIGHT")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--ask", action="append", default=[], help="a question to send; may be given several times")
    parser.add_argument("--click", help="CSS selector of something to click before the picture")
    parser.add_argument("--after", type=float, default=1.0, help="seconds to wait after each question")
    options = parser.parse_args()
    width, height = (int(part) for part in options.size.split("x"))
    with open_browser() as browser:
        emulate(browser, width, height, options.dark)
        browser.implicitly_wait(10)
        browser.get(options.url)
        time.sleep(1.0)
        for question in options.ask:
            browser.find_element(By.ID, "question").send_keys(question, Keys.ENTER)
            time.sleep(options.after)
        if options.click:
            browser.find_element(By.CSS_SELECTOR, options.click).click()
            time.sleep(0.3)
        browser.save_screenshot(str(options.out))


if __name__ == "__main__":
    main()
