"""Irregular English forms and their base words.

Perl ROUGE-1.5.5 -m looks up such forms in the 5,930 exceptions of WordNet 2.0
before it stems. These are the common ones, with WordNet's entries; "older" is
not among them, and some are odd ("best" is "well"). Other forms are stemmed
like any word.
"""

# Word, then its forms.
_VERBS = """
    arise arose arisen, awake awoke awoken, be were been, bear bore borne
    born, beat beaten, become became, befall befell befallen, begin began
    begun, behold beheld, bend bent, beseech besought, bid bade bidden, bind
    bound, bite bitten, bleed bled, blow blew blown, break broke broken,
    breed bred, bring brought, broadcaster broadcaster, build built, burn
    burnt, buy bought, catch caught, choose chose chosen, cling clung, come
    came, creep crept, deal dealt, die dying, do done, draw drew drawn,
    dream dreamt, drink drank drunk, drive drove driven, dwell dwelt, eat
    eaten, fall fell fallen, feel felt, fight fought, find found, flee fled,
    fling flung, fly flew flown, forbear forbore forborne, forbid forbade
    forbidden, forego foregone forewent, foresee foresaw foreseen, foretell
    foretold, forget forgot forgotten, forgive forgave forgiven, forgo
    forgone forwent, forsake forsook forsaken, freeze froze frozen, get
    gotten, give gave given, go went gone goes, grind ground, grow grew
    grown, hang hung, hear heard, hide hidden, hold held, keep kept, kneel
    knelt, know knew known, lade laden, lay laid, lean leant, leap leapt,
    learn learnt, leave left, lend lent, lie lain lying, lose lost, make
    made, may might, mean meant, melt molten, mimic mimicked mimicking,
    mislead misled, mistake mistook mistaken, misunderstand misunderstood,
    mow mown, outdo outdid outdone, outgrow outgrew outgrown, outrun outran,
    outsell outsold, overcome overcame, overdo overdid overdone, overhear
    overheard, overlie overlay overlain, overpay overpaid, override overrode
    overridden, overrun overran, oversee oversaw overseen, oversell
    oversold, overtake overtook overtaken, overthrow overthrew overthrown,
    panic panicked panicking, partake partook partaken, pay paid, picnic
    picnicked picnicking, plead pled, prepay prepaid, prove proven, rebuild
    rebuilt, rend rent, repay repaid, retake retook retaken, rethink
    rethought, rewrite rewrote rewritten, ride ridden rode, ring rang rung,
    rise rose risen, saw sawn, say said, see seen, seek sought, sell sold,
    send sent, sew sewn, shake shook shaken, shine shone, shoot shot, show
    shown, shrink shrank shrunk shrunken, sing sang sung, sink sank sunk
    sunken, slay slew slain, sleep slept, sling slung, slink slunk, smell
    smelt, smite smote smitten, sow sown, speak spoke spoken, speed sped,
    spell spelt, spend spent, spill spilt, spin spun, spit spat, spoil
    spoilt, spring sprang sprung, stand stood, steal stole stolen, stick
    stuck, sting stung, stink stank stunk, strew strewn, stride strode
    stridden, strike struck, string strung, strive strove striven, swear
    swore sworn, sweep swept, swell swollen, swim swam, swing swung, take
    took taken, teach taught, tear tore torn, tell told, think thought,
    throw threw thrown, tie tying, traffic trafficked trafficking, tread
    trod trodden, undergo underwent undergone, underlie underlay underlain
    underlying, underpay underpaid, understand understood, undertake
    undertook undertaken, undo undid undone, unwind unwound, uphold upheld,
    vie vying, wake woke woken, wear wore worn, weave wove woven, weep wept,
    wind wound, withdraw withdrew withdrawn, withhold withheld, withstand
    withstood, wring wrung, write wrote written
"""

# y becomes ied.
_IN_Y = """
    accompany acidify ally amplify apply beautify bully bury busy calcify
    carry certify citify clarify classify codify comply copy crucify cry
    dally dandify declassify decry defy deify denitrify deny descry dignify
    disqualify dissatisfy diversify dry edify electrify embody empty
    emulsify envy esterify exemplify falsify fancy ferry fortify fry gasify
    glorify gratify horrify humidify hurry identify imply indemnify
    intensify jellify justify levy lignify liquefy lobby magnify marry
    misapply modify mortify multiply mutiny mystify nitrify notify nullify
    objectify occupy ossify oversimplify pacify parry personify petrify pity
    preoccupy prettify prophesy pry purify putrefy qualify quantify query
    rally ramify rarefy ratify reclassify rectify reify rely remarry reply
    rigidify sally sanctify satisfy signify simplify solidify specify
    stratify study stupefy sully supply tally tarry terrify testify tidy
    transmogrify try typify unify vary verify vilify vivify worry
"""

_NOUNS = """
    addendum addenda, alumnus alumni, analysis analyses, apex apices,
    appendix appendices, aquarium aquaria, automaton automata, bacillus
    bacilli, bureau bureaux, cactus cacti, calf calves, caput capita, child
    children, codex codices, colon cola, consortium consortia, corpus
    corpora, cortex cortices, crisis crises, criterion criteria, curriculum
    curricula, datum data, diagnosis diagnoses, dictum dicta, elf elves,
    ellipsis ellipses, emphasis emphases, erratum errata, focus foci, foot
    feet, forum fora, fungus fungi, genus genera, goose geese, grandchild
    grandchildren, gymnasium gymnasia, half halves, honorarium honoraria,
    hoof hooves, hypothesis hypotheses, index indices, knife knives, larynx
    larynges, leaf leaves, life lives, loaf loaves, locus loci, louse lice,
    matrix matrices, maximum maxima, medium media, memorandum memoranda,
    metamorphosis metamorphoses, millennium millennia, minimum minima,
    moratorium moratoria, mouse mice, neurosis neuroses, no noes, nucleus
    nuclei, oasis oases, optimum optima, ox oxen, parenthesis parentheses,
    penny pence, phenomenon phenomena, plateau plateaux, prognosis
    prognoses, psychosis psychoses, quantum quanta, radius radii, referendum
    referenda, scarf scarves, self selves, serum sera, sheaf sheaves, shelf
    shelves, spectrum spectra, stadium stadia, stimulus stimuli, stratum
    strata, syllabus syllabi, symposium symposia, synthesis syntheses,
    tableau tableaux, taxis taxis, thesis theses, thief thieves, tooth
    teeth, ultimatum ultimata, vacuum vacua, vertex vertices, vortex
    vortices, wife wives, wolf wolves, yourself yourselves
"""

# Degrees, and words that only look like one.
_ADJECTIVES = """
    angry angrier angriest, attacker attacker, bad worse worst, big bigger
    biggest, broadcaster broadcaster, busy busier busiest, costly costlier
    costliest, customer customer, deadly deadlier deadliest, deeply deeper,
    dim dimmer dimmest, dirty dirtier dirtiest, dry drier driest, early
    earlier earliest, easy easier easiest, far further farther, fat fatter
    fattest, free freer freest, funny funnier funniest, happy happier
    happiest, hard harder hardest, healthy healthier healthiest, heavy
    heavier heaviest, hind hinder, hot hotter hottest, hungry hungrier
    hungriest, insider insider, lengthy lengthier lengthiest, lively
    livelier liveliest, lobby lobbied, lonely lonelier loneliest, lucky
    luckier luckiest, mariner mariner, mighty mightier mightiest, modeler
    modeler, noisy noisier noisiest, oliver oliver, outsider outsider,
    pretty prettier prettiest, ready readier readiest, risky riskier
    riskiest, sad sadder saddest, salary salaried, slim slimmer slimmest,
    steady steadier steadiest, strong stronger strongest, teenager teenager,
    thin thinner thinnest, timely timelier timeliest, tiny tinier tiniest,
    ugly uglier ugliest, wealthy wealthier wealthiest, well better best, wet
    wetter wettest, wholesaler wholesaler, young younger youngest
"""

STEMS = {
    form: word
    for table in (_VERBS, _NOUNS, _ADJECTIVES)
    for word, *forms in map(str.split, table.split(','))
    for form in forms
} | {f'{verb[:-1]}ied': verb for verb in _IN_Y.split()}
