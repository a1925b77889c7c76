// Command template is a stager to copy: the reference stager with a configuration key, a step, a call-in and an isolator
// of its own. README.md has the commands.
package main

import (
	"os"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/callins/plain"
	"kurma.io/stager/plan"
	"kurma.io/stager/program"
	"kurma.io/stager/program/native"
)

// version is set by build.sh: the linker can set only a variable of a package.
var version string

func main() { os.Exit(program.Main(parts())) }

// parts are the parts of this stager. All others are the reference stager's.
func parts() program.Options {
	return program.Options{
		Version: version,
		Begin:   native.Begin,
		Streams: plain.Streams,
		Steps:   boot.After(boot.Steps(), "mount roots", boot.Step{Name: "write info", Do: writeInfo}),
		CallIns: map[string]callins.CallIn{infoCallIn: callins.PrintDocument(infoCallIn)},
		Handlers: func(pod *boot.Pod) map[string]callins.Handler {
			return map[string]callins.Handler{infoCallIn: serveInfo(pod)}
		},
		Rows: plan.Rows{
			Keys:      []plan.KeyRow{{Name: infoKey, Decide: decideInfo}},
			Isolators: []plan.IsolatorRow{{Name: firstKilled, App: true, Decide: decideFirstKilled}},
		},
	}
}
