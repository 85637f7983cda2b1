package main

import (
	"fmt"
	"strings"
)

func tableHead(contenders []string) string {
	var b strings.Builder
	b.WriteString("| tokenizer | text |")
	for _, library := range contenders {
		fmt.Fprintf(&b, " %s cold | warm | load ms | MB |", library)
	}
	if len(contenders) > 1 {
		b.WriteString(" cold ratio | warm ratio | same ids |")
	}
	b.WriteString("\n|" + strings.Repeat("---|", strings.Count(b.String(), "|")-1) + "\n")
	return b.String()
}

func tableRow(name string, kind kindOfText, contenders []string, row []figures) string {
	var b strings.Builder
	megabytes := float64(kind.bytes) / 1e6
	fmt.Fprintf(&b, "| %s | %s |", name, kind.name)
	same := "yes"
	for i := range contenders {
		f := row[i]
		fmt.Fprintf(&b, " %.1f | %.1f | %.0f | %.0f |", megabytes/f.Cold, megabytes/f.Warm, f.Load*1000, f.Memory)
		if f.Sum != row[0].Sum || f.Tokens != row[0].Tokens {
			same = fmt.Sprintf("**no** (%s)", contenders[i])
		}
	}
	if len(contenders) > 1 {
		fmt.Fprintf(&b, " %.2f | %.2f | %s |", row[1].Cold/row[0].Cold, row[1].Warm/row[0].Warm, same)
	}
	b.WriteString("\n")
	return b.String()
}
