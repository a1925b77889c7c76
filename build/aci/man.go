package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"kurma.io/stager/internal/version"
)

// writeManPage writes aci's man page in the language of man(7). Its text is that of the help.
func writeManPage(w io.Writer) error {
	var b strings.Builder
	roff := strings.NewReplacer(`\`, `\e`, "-", `\-`)
	fmt.Fprintf(&b, ".TH ACI 1 \"\" \"aci %s\" \"Kurma launcher\"\n", roff.Replace(version.String()))
	b.WriteString(".SH NAME\naci \\- builds, examines, signs and extracts App Container images\n")
	b.WriteString(".SH SYNOPSIS\naci COMMAND [ARGUMENTS]\n.SH COMMANDS\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, ".SS %s\n%s\n", roff.Replace("aci "+c.name+" "+c.usage), roff.Replace(c.short))
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		// The command declares its flags, and does nothing else.
		_ = c.run(streams{io.Discard, io.Discard}, flags, []string{"--help"})
		flags.VisitAll(func(f *flag.Flag) {
			value, usage := flag.UnquoteUsage(f)
			dashes := `\-\-`[:min(len(f.Name), 2)*2]
			fmt.Fprintf(&b, ".TP\n\\fB%s%s\\fR \\fI%s\\fR\n%s\n",
				dashes, roff.Replace(f.Name), roff.Replace(value), roff.Replace(usage))
		})
	}
	b.WriteString(".SH EXIT STATUS\n0; 1 if a command has failed; 2 for an error in the command line\n")
	b.WriteString(".SH SEE ALSO\n\\fBlauncher\\fR(1)\n")
	_, err := io.WriteString(w, b.String())
	return err
}
