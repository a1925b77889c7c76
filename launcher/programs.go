package main

import (
	"os"
	"path/filepath"

	"kurma.io/stager/launcher/daemon"
)

// programs are this program's own commands, for processes that outlive this one and have another working
// folder.
func (c *cli) programs() daemon.Programs {
	argv := []string{os.Args[0]}
	for _, o := range [][2]string{{"--config", c.configFile}, {"--state", c.state}} {
		if o[1] == "" {
			continue
		}
		path := o[1]
		if abs, err := filepath.Abs(path); err == nil { // without a working directory, only an absolute path works
			path = abs
		}
		argv = append(argv, o[0], path)
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil { // in a root without /proc, where an image can be imported all the same
		self = ""
	}
	return daemon.Programs{Monitor: append(argv, "monitor"), Hold: self}
}
