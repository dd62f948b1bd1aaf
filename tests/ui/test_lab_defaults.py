"""JupyterLab opens on the bench without asking about news, and a user's own settings stay."""

import json
import os

from memlab.cli.lab import DEFAULTS, lab_environment


def test_jupyterlab_neither_asks_for_news_nor_looks_for_updates() -> None:
    defaults = json.loads((DEFAULTS / "labconfig" / "default_setting_overrides.json").read_text())

    assert defaults == {
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
    }


def test_the_defaults_come_after_the_folders_that_a_user_names() -> None:
    bare, named = lab_environment({"HOME": "/h"}), lab_environment({"JUPYTER_CONFIG_PATH": "/mine"})

    assert bare == {"HOME": "/h", "JUPYTER_CONFIG_PATH": str(DEFAULTS)}
    assert named["JUPYTER_CONFIG_PATH"].split(os.pathsep) == ["/mine", str(DEFAULTS)]
