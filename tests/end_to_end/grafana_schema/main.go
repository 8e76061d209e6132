// Checks dashboards against Grafana's own schemas: each key, each type and each bound, also in options of panels and in
// queries. Prints a line for each fault, and ends with status 1 if there is one.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	status := 0
	for _, name := range os.Args[1:] {
		if fault := fault(name); fault != "" {
			fmt.Printf("%s:\n%s\n", name, fault)
			status = 1
		}
	}
	os.Exit(status)
}

func fault(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	read := dashboard.Dashboard{}
	// An empty list of faults is returned, too.
	if err := read.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err.Error()
	}
	if err := read.Validate(); err != nil {
		return err.Error()
	}
	return ""
}
