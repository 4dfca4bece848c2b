"""``python -m strandline_snapshot`` as a process."""

import json
import os
import subprocess
import sys

from .test_reading import ALL, InFolder
from .writer import JOB, framed


class Command(InFolder):
    def setUp(self):
        super().setUp()
        self.path = self.publish([([(b"k", b"v"), (b"l", b"")], ALL)], number=7)

    def command(self, *arguments, code=0):
        command = [sys.executable, "-m", "strandline_snapshot", *arguments]
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        ended = subprocess.run(command, capture_output=True, cwd=package, check=False)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return (ended.stdout if code != 2 and not ended.stderr else ended.stderr).decode()

    def test_entries(self):
        self.assertEqual(self.command("entries", self.path), "s\t6b\t76\ns\t6c\t\n")
        line = self.command("entries", self.root.job, "--section", "s", "--json").splitlines()[0]
        self.assertEqual(json.loads(line), {"section": "s", "key": "6b", "value": "76"})
        self.assertIn("no section `t`", self.command("entries", self.path, "--section", "t", code=2))

    def test_list(self):
        text = f"{JOB} (a job)  chk-7  2023-11-14 22:13:20 UTC"
        self.assertTrue(self.command("list", self.root.folder).startswith(text))
        (found,) = json.loads(self.command("list", self.root.job, "--json"))
        self.assertEqual((found["checkpoint"], found["problem"]), (7, None))
        self.root.put("chk-8/_metadata", b"x")
        self.assertIn("chk-8/_metadata: has only 1 bytes", self.command("list", self.root.job))
        self.assertEqual(json.loads(self.command("list", self.root.job, "--json"))[1]["created_ms"], None)

    def test_show(self):
        text = self.command("show", self.path)
        self.assertIn(f"checkpoint 7 of job {JOB}", text)
        self.assertIn("base: 2 entries, 0 tombstones", text)
        manifest = json.loads(self.command("show", self.path, "--json"))
        self.assertEqual(manifest["sections"][0]["runs"][0]["ranges"], [{"first": "", "after": None}])

    def test_verify(self):
        self.assertIn("whole", self.command("verify", self.path))
        (pack,) = os.listdir(os.path.join(self.root.job, "shared"))
        self.root.put(f"shared/{pack}", b"SLPK\x01\x00" + bytes(200))
        self.assertIn(f"{pack}: run index at", self.command("verify", self.path, code=1))
        found = json.loads(self.command("verify", self.path, "--json", code=1))
        self.assertTrue(found["problems"][0]["file"].endswith(pack))

    def test_refusals(self):
        self.assertIn("no checkpoint, no savepoint and no job", self.command("show", "none", code=2))
        self.assertIn("usage", self.command("unknown", code=2))
        self.root.put("chk-7/_metadata", framed(b"SLMF", {}, version=9))
        self.assertIn("needs version 9", self.command("verify", self.path, code=1))
