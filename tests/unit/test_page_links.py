"""Links from the dashboard to other tools, as the setting and the options of a mounted dashboard have them."""

from __future__ import annotations

import pytest

from rival_client.errors import InvalidArgument, InvalidSetting
from rival_workers.dashboard.board_options import Options
from rival_workers.page_links import page_links
from rival_workers.settings import WorkerSettings

#: None of these leads to a page, or names what the page knows.
WRONG = (
    "javascript:alert(1)",
    "//logs.example",
    "logs",
    "https://",
    "https://me:s3cret@logs.example/{run_id}",
    "https://{run_id}.example",
    "https://logs.example/{password}",
    "https://logs.example/{}",
    "https://[::1/",
)


def test_several_links_have_spaces_between_them() -> None:
    text = "Logs=https://logs.example/?q={run_id}&step={step}  Board=http://[::1]:3000/d/{workflow}"
    assert WorkerSettings.from_env({"RIVAL_DASHBOARD_LINKS": text}).dashboard_links == text
    assert page_links(text) == {
        "Logs": "https://logs.example/?q={run_id}&step={step}",
        "Board": "http://[::1]:3000/d/{workflow}",
    }
    assert page_links("") == {}


@pytest.mark.parametrize("template", WRONG)
def test_what_leads_to_no_page_is_refused(template: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        WorkerSettings.from_env({"RIVAL_DASHBOARD_LINKS": f"Logs={template}"})
    assert "s3cret" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="Invalid argument links: 'Logs' leads to no page"):
        Options(links={"Logs": template})


@pytest.mark.parametrize("text", ["https://logs.example", "=https://logs.example", "Logs=https://a.example/ b"])
def test_each_link_has_a_name(text: str) -> None:
    with pytest.raises(InvalidSetting, match="RIVAL_DASHBOARD_LINKS"):
        WorkerSettings.from_env({"RIVAL_DASHBOARD_LINKS": text})
